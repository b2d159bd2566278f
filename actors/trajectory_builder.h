#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "core/trajectory.h"

namespace troop {

// Cuts one environment's steps into frames and n-step items (docs: core/trajectory.h).
// An item gets its priority from the actor's own q-values (Horgan et al. 2018, sec. 3):
//   |Σ_{k<n} γ^k r_{t+k+1} + γ^n max_a q(s_{t+n}, a) − q(s_t, a_t)|,
// so it is complete when the frame it bootstraps from has been acted on, or the episode ended. At a
// truncation the final observation was never acted on: the last max q known stands in.
// Owner: one actor. Amortised O(frame bytes + n) a step.
class TrajectoryBuilder {
 public:
  struct Options {
    TrajectorySpec spec;
    int n_step = 3;
    double gamma = 0.99;
    double reward_clip = 0;  // as the learner's, for priorities only: frames keep the raw reward
    int copies = 1;          // of each item
  };
  struct Step {
    std::span<const std::byte> observation;  // acted on
    std::span<const std::byte> action;
    float q_taken = 0, q_max = 0;  // q(s, a); max_a q(s, a), or q(s, μ(s)) of continuous actions
    float reward = 0;              // of the step
    bool terminated = false, truncated = false;
    std::span<const std::byte> final_observation;  // where terminated or truncated
    std::uint64_t policy_version = 0;
  };
  TrajectoryBuilder(const Options& options, StreamId stream);

  void Append(const Step& step);
  // The step that was to be taken from `observation` is lost: the episode ends in front of it, as
  // by a truncation, and what comes next is another one. No item reaches across it. q_max: of
  // `observation`; nullopt: not known, and the items that would bootstrap from it are lost, too.
  void Cut(std::span<const std::byte> observation, std::optional<float> q_max);
  StreamId stream() const { return stream_; }
  std::size_t items() const { return items_.size(); }
  std::uint32_t frames() const { return frames_; }
  // Hands out the frames and items since the last Take; the stream goes on.
  Chunk Take(std::vector<Item>* items);

 private:
  struct Pending {  // a step whose item is not complete
    std::uint64_t frame;
    float q_taken, reward;
    std::uint64_t policy_version;
  };
  void AppendFrame(const Step& step, bool final);
  void EmitFirst(double bootstrap);

  const Options options_;
  const StreamId stream_;
  std::deque<Pending> pending_;  // at most n
  bool open_ = false;            // the last frame was acted on: its episode goes on
  std::uint64_t next_frame_ = 0;
  std::uint32_t frames_ = 0;  // since the last Take
  std::vector<std::byte> observation_, action_;
  std::vector<float> reward_, discount_;
  std::vector<std::uint8_t> final_;
  std::vector<Item> items_;
};

}  // namespace troop
