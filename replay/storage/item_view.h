#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "core/base/status.h"
#include "core/tensor/trajectory.h"
#include "replay/replay_modes.h"

namespace troop {

// How items of a table map to frames. An item has `length` steps (1 … length_max) and length + 1
// frames, preceded by up to `lead_max()` lead frames of the same episode for stacked
// observations and a recurrent network's burn-in. At an episode's start there are fewer; missing
// ones are zeros in a batch. Items never cross an episode's boundary.
//
//   transition  observation (the stack that ends in the item's first frame), next_observation (the
//               stack that ends in its last), action of the first step, rewards of all steps
//   sequence    all frames from the lead to the last, actions and rewards of every step
struct ViewSpec {
  using Kind = ViewKind;
  Kind kind = Kind::kTransition;
  int length_max = 3;  // n of n-step, or steps of a sequence, burn-in not counted
  int stack = 1;       // frames per observation
  int burn_in = 0;     // kSequence: steps that only warm up the recurrent state
  int lead_max() const { return stack - 1 + burn_in; }
  int frames_max() const { return lead_max() + length_max + 1; }
  int steps() const { return kind == Kind::kSequence ? burn_in + length_max : length_max; }
  // Frames in one row of a decoded batch: `stack`, or the whole window of a sequence.
  int row_frames() const { return kind == Kind::kSequence ? frames_max() : stack; }
  bool operator==(const ViewSpec&) const = default;
};

// Checks the ranges: 1 <= length_max <= 1024, 1 <= stack <= 64, 0 <= burn_in <= 1024, and no
// burn-in for transitions. Errors: kInvalidArgument.
Status CheckView(const ViewSpec& view);

// The frames of an item that are returned, as indices from its earliest: all lead + length + 1,
// except the middle frames of a transition that are in neither stack. The ranges are [0, first)
// and [second, end), with second >= first and end = lead + length + 1.
struct FrameRanges {
  int first = 0, second = 0, end = 0;
  int count() const { return first + end - second; }
};
constexpr FrameRanges FramesOf(const ViewSpec& view, int lead, int length) {
  const int end = lead + length + 1;
  if (view.kind == ViewSpec::Kind::kSequence) return {end, end, end};
  const int first = lead + 1;  // the stack, shorter at an episode's start
  const int second = end - view.stack;
  return {first, second > first ? second : first, end};
}

}  // namespace troop
