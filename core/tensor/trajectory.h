#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/buffer.h"
#include "core/tensor/spec.h"

namespace troop {

// Experience: frames of one stream, and items that are views of them.
//
// A *stream* is the sequence of all frames of one environment of one actor incarnation. Frame t of
// an episode contains the observation o_t and, for the step taken from it, the action a_t, the
// reward r_{t+1} and the discount d_{t+1} (0 if the step terminated, else 1; γ is applied by the
// learner). The frame after the last step of an episode contains only the final observation
// (`final`; action, reward and discount are 0). Each frame is sent and stored once, regardless of
// the number of items that refer to it.
using StreamId = std::uint64_t;  // incarnation << 32 | global environment index

struct TrajectorySpec {
  TensorSpec observation;                          // of one frame
  TensorSpec action;                               // of one step
  std::optional<TensorSpec> state = std::nullopt;  // recurrent state of an item
  bool operator==(const TrajectorySpec&) const = default;
};

// Consecutive frames [first_frame, first_frame + frames) of a stream.
struct Chunk {
  StreamId stream = 0;
  std::uint64_t first_frame = 0;
  std::uint32_t frames = 0;
  Buffer observation;  // [frames, ...observation]
  Buffer action;       // [frames, ...action]
  Buffer reward;       // [frames] f32, raw (not clipped, not summed)
  Buffer discount;     // [frames] f32
  Buffer final;        // [frames] u8: 1 where the frame ends an episode
};

// A view of the steps [first_frame, first_frame + length) of its stream, which bootstraps from the
// observation of frame first_frame + length. An item never crosses the end of an episode.
struct Item {
  StreamId stream = 0;
  std::uint64_t first_frame = 0;
  std::uint32_t length = 0;  // 1 … n of n-step; shorter at the end of an episode
  std::uint32_t burn_in =
      0;  // frames before first_frame, for recurrent networks; fewer near the start of an episode
  float priority = 0;                // initial |TD error|, before the exponent α
  std::uint64_t policy_version = 0;  // version of the weights that chose the actions
  Buffer state = {};  // [...state] before step first_frame - burn_in; empty if the spec has none
};

// Magnitude of an observation or reward that can make an update fail although it and all weights
// are finite: a loss overflows at about 1e19, and a deep network amplifies its inputs.
inline constexpr float kSuspiciousMagnitude = 1e9F;

// Version of the weights of a learner: its incarnation in the upper bits, the number of updates in
// the lower. So a learner that resumes from a checkpoint, with fewer updates, is newer than its
// predecessor.
constexpr std::uint64_t WeightsVersion(std::uint64_t incarnation, std::uint64_t updates) {
  return incarnation << 32 | updates;
}
constexpr std::uint64_t UpdatesOf(std::uint64_t version) { return version & 0xFFFFFFFFu; }

// Permanent identity of an item. `generation` counts the uses of the slot and starts differently in
// each replay process, so a late priority update never affects a newer item. On the wire:
// generation << 32 | slot; 0 means no item.
struct ItemKey {
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;  // never 0
  std::uint32_t shard = 0;       // server that holds the item; not on the wire
  bool operator==(const ItemKey&) const = default;
};

}  // namespace troop
