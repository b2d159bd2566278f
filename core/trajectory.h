#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/buffer.h"
#include "core/spec.h"

namespace troop {

// Experience on its way: frames of one stream, and items that are views over them.
//
// A *stream* is the endless row of frames of one environment of one actor incarnation. Frame t of
// an episode holds observation o_t and, of the step taken from it, action a_t, reward r_{t+1} and
// discount d_{t+1} (0: the step terminated; else 1; γ is the learner's). The frame after the last
// step of an episode holds the final observation alone (`final`: action, reward, discount are 0).
// Each frame is sent and stored once, however many items look at it.
using StreamId = std::uint64_t;  // incarnation << 32 | global environment index

struct TrajectorySpec {
  TensorSpec observation;                          // of one frame
  TensorSpec action;                               // of one step
  std::optional<TensorSpec> state = std::nullopt;  // of an item: a recurrent network's
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

// A view: steps [first_frame, first_frame + length) of its stream, bootstrapping from the
// observation of frame first_frame + length. An item never crosses an episode's end.
struct Item {
  StreamId stream = 0;
  std::uint64_t first_frame = 0;
  std::uint32_t length = 0;   // 1 … n of n-step; shorter at an episode's end
  std::uint32_t burn_in = 0;  // frames before first_frame, for recurrent networks; fewer where
                              // the episode begins later
  float priority = 0;         // initial, before the exponent α: |TD error|
  std::uint64_t policy_version = 0;  // of the weights that acted
  Buffer state = {};  // [...state] before step first_frame - burn_in; empty where the spec has none
};

// A number of an observation or a reward whose size can make an update fail although the number and
// all weights are finite: a loss needs some 1e19 to overflow, and a deep network multiplies what
// goes in.
inline constexpr float kSuspectNumber = 1e9F;

// The version of a learner's weights: its incarnation above its updates, so that a learner that
// starts again from a checkpoint, with fewer updates, is newer than the one before.
constexpr std::uint64_t WeightsVersion(std::uint64_t incarnation, std::uint64_t updates) {
  return incarnation << 32 | updates;
}
constexpr std::uint64_t UpdatesOf(std::uint64_t version) { return version & 0xFFFFFFFFu; }

// Names an item for ever: `generation` counts how often the slot was reused, from a number that
// differs between a replay and its successor, so a late priority update never hits a newer item.
// generation << 32 | slot on the wire; 0 is no item.
struct ItemKey {
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;  // never 0
  std::uint32_t shard = 0;       // which of the servers that share the table; not on the wire
  bool operator==(const ItemKey&) const = default;
};

}  // namespace troop
