#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "core/tensor/trajectory.h"
#include "replay/storage/item_view.h"

namespace troop {

// Cuts the steps of E environments, one stream each, into frames and items.
//   transition  an item starts at every step and has `length_max` steps, or fewer at the end of its
//               episode
//   sequence    an item starts at every `period`-th step of an episode; a shorter one at the end of
//   an
//               episode is omitted if the previous item has all of its steps
// An item is complete when the frame after its last step exists: at the next step, or at once if
// the episode ends. Owner: one thread. O(bytes of the step) per step.
class TrajectoryCutter {
 public:
  struct Options {
    TrajectorySpec spec;
    ViewSpec view;
    int environments = 1;
    int period = 1;                  // of sequences: steps between two starts
    std::uint64_t first_stream = 0;  // environment e is stream first_stream + e
  };
  // One step of every environment: E rows each. Environments with `skip` set are ignored.
  struct Steps {
    std::span<const std::byte> observation;       // [E, ...observation] acted on
    std::span<const std::byte> action;            // [E, ...action]
    std::span<const std::byte> next_observation;  // [E, ...observation]; read if an episode ends
    std::span<const std::byte> state;         // [E, ...state] before the step, if the spec has one
    std::span<const float> reward, priority;  // [E]; priority of the item that starts here
    std::span<const std::uint8_t> terminated, truncated, skip;  // [E]; skip: [E] or empty
    std::uint64_t policy_version = 0;
  };
  explicit TrajectoryCutter(const Options& options);

  const Options& options() const { return options_; }
  // Appends one step. Errors: kInvalidArgument: a wrong size, or a priority that is not finite and
  // >= 0. Nothing changed then.
  Status Append(const Steps& steps);
  // Ends the episode of one environment without a final observation (it was reset early): no item
  // crosses the break, and incomplete items are dropped.
  void Break(int environment);
  std::uint32_t frames() const { return frames_; }  // since the last Take
  std::size_t items() const { return items_.size(); }
  // Moves out all frames and complete items since the last Take.
  void Take(std::vector<Chunk>* chunks, std::vector<Item>* items);

 private:
  struct Pending {  // start of an incomplete item
    std::uint64_t frame;
    float priority;
    std::uint64_t policy_version;
    Buffer state;
  };
  struct Stream {
    std::deque<Pending> pending;
    std::deque<Buffer> states;  // of the newest burn_in + 1 steps of the episode
    std::uint64_t next_frame = 0;
    std::uint64_t episode_first = 0;
    std::uint64_t covered = 0;  // frame after the last step that an item of the episode has
    std::uint32_t frames = 0;   // since the last Take
    std::vector<std::byte> observation, action;
    std::vector<float> reward, discount;
    std::vector<std::uint8_t> final;
  };
  Status Check(const Steps& steps) const;
  void AppendStep(const Steps& steps, int environment);
  void AppendFrame(Stream* stream, std::span<const std::byte> observation);
  void StartItem(const Steps& steps, int environment);
  void FinishItems(int environment, bool ended);
  Chunk TakeChunk(int environment);

  const Options options_;
  std::vector<Stream> streams_;
  std::vector<Item> items_;
  std::vector<Chunk> broken_;  // cut by Break before the next Take
  std::uint32_t frames_ = 0;
};

}  // namespace troop
