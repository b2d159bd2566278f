#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "core/status.h"
#include "core/trajectory.h"
#include "replay/view.h"

namespace troop {

// Cuts the steps of E environments, a stream each, into frames and items.
//   transition  an item starts at every step and has `length_max` steps, or those up to the end of
//               its episode
//   sequence    an item starts at every `period`-th step of an episode; at the end of an episode
//               shorter, unless the one before it holds all of its steps
// An item is complete when the frame behind its last step is there: at the next step, or at once
// where the episode ends. Owner: one thread. O(bytes of the step) a step.
class TrajectoryCutter {
 public:
  struct Options {
    TrajectorySpec spec;
    ViewSpec view;
    int environments = 1;
    int period = 1;
    std::uint64_t first_stream = 0;  // environment e is stream first_stream + e
  };
  // One step of every environment: E rows each. An environment where `skip` is set takes no part.
  struct Steps {
    std::span<const std::byte> observation;       // [E, ...observation] acted on
    std::span<const std::byte> action;            // [E, ...action]
    std::span<const std::byte> next_observation;  // [E, ...observation]; read where an episode ends
    std::span<const std::byte> state;         // [E, ...state] before the step, if the spec has one
    std::span<const float> reward, priority;  // [E]; of items that start at this step
    std::span<const std::uint8_t> terminated, truncated, skip;  // [E]; skip: [E] or empty
    std::uint64_t policy_version = 0;
  };
  explicit TrajectoryCutter(const Options& options);

  const Options& options() const { return options_; }
  // Errors: kInvalidArgument: a size that does not fit, a priority that is no number >= 0. Nothing
  // changed then.
  Status Append(const Steps& steps);
  // Ends the episode of one environment where it is, without a final observation (it was reset
  // early): no item reaches across, and the unfinished ones are dropped.
  void Break(int environment);
  std::uint32_t frames() const { return frames_; }  // since the last Take
  std::size_t items() const { return items_.size(); }
  void Take(std::vector<Chunk>* chunks, std::vector<Item>* items);

 private:
  struct Pending {  // a step at which an item starts
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
    std::uint64_t covered = 0;  // frame behind the last step that an item of the episode holds
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
  std::vector<Chunk> broken_;  // cut off by Break
  std::uint32_t frames_ = 0;
};

}  // namespace troop
