#pragma once

#include <cstdint>
#include <optional>

#include "core/status.h"
#include "core/trajectory.h"

namespace troop {

// How the items of a table look at its frames. An item has `length` steps (1 … length_max) and
// length + 1 frames of its own; before them come up to `lead_max()` more of the same episode: those
// that a stacked observation and a recurrent network's burn-in need. At an episode's start there
// are fewer; what is missing is zeros in a batch. Nothing crosses an episode's border.
//
//   transition  observation (a stack that ends in the item's first frame), next_observation (a
//               stack that ends in its last), action of the first step, rewards of all
//   sequence    all frames from the lead to the last, actions and rewards of every step
struct ViewSpec {
  enum class Kind : std::uint8_t { kTransition, kSequence } kind = Kind::kTransition;
  int length_max = 3;  // n of n-step, or steps of a sequence, burn-in not counted
  int stack = 1;       // frames per observation
  int burn_in = 0;     // kSequence: steps before, for the recurrent state alone
  int lead_max() const { return stack - 1 + burn_in; }
  int frames_max() const { return lead_max() + length_max + 1; }
  int steps() const { return kind == Kind::kSequence ? burn_in + length_max : length_max; }
  // Frames of one row of a decoded batch: `stack`, or those of the whole window.
  int row_frames() const { return kind == Kind::kSequence ? frames_max() : stack; }
  bool operator==(const ViewSpec&) const = default;
};

// Errors: kInvalidArgument: 1 <= length_max <= 1024, 1 <= stack <= 64, 0 <= burn_in <= 1024, and a
// transition has no burn-in.
Status CheckView(const ViewSpec& view);

// Which of an item's lead + length + 1 frames are handed out, counted from its earliest: all of
// them, except those in the middle of a transition that no stack holds. [0, first) and
// [second, lead + length + 1), where second >= first.
struct FrameRanges {
  int first = 0, second = 0, end = 0;
  int count() const { return first + end - second; }
};
constexpr FrameRanges FramesOf(const ViewSpec& view, int lead, int length) {
  const int end = lead + length + 1;
  if (view.kind == ViewSpec::Kind::kSequence) return {end, end, end};
  const int first = lead + 1;  // the stack, less what is missing at an episode's start
  const int second = end - view.stack;
  return {first, second > first ? second : first, end};
}

}  // namespace troop
