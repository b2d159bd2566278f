#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/tensor/trajectory.h"

namespace troop {

// Builds frames and n-step items from one environment's steps (terms: core/tensor/trajectory.h). An
// item's initial priority comes from the actor's q-values (Horgan et al. 2018, sec. 3):
//   |Σ_{k<n} γ^k r_{t+k+1} + γ^n max_a q(s_{t+n}, a) − q(s_t, a_t)|.
// So an item is complete when its bootstrap frame has been acted on, or the episode has ended. The
// final observation of a truncated episode is never acted on; the last known max q is used for it.
// With options.unroll, items are unrolls instead: consecutive sequences of that many steps, fewer
// at the end of an episode, of which neighbours share `overlap` steps. Their initial priority is
// that of the learner (kernels/loss/sequence_q_loss.h), with the actor's q-values: η max |δ| + (1 -
// η) mean |δ| of the TD errors δ, by default the mean of
//   δ_t = r_{t+1} + γ max_a q(s_{t+1}, a) − q(s_t, a_t).
// Owner: one actor. Amortized O(frame bytes + n) per step.
class TrajectoryBuilder {
 public:
  struct Options {
    TrajectorySpec spec;
    int n_step = 3;
    int unroll = 0;  // steps per unroll; 0: n-step items
    double gamma = 0.99;
    // The learner's bound; only for priorities: frames keep the raw reward.
    double reward_clip = 0;
    int copies = 1;  // of each item
    // Columns of the recurrent state, which precede the numbers of the steps in an item's state.
    std::int64_t state_columns = 0;
    // Unrolls only. The recurrent state is that before the first step of the burn-in.
    int overlap = 0, burn_in = 0;
    int unroll_n_step = 1;     // rewards in the TD errors of the priority
    bool rescale = false;      // the q-values are rescaled (value_rescaling.h)
    double largest_share = 0;  // η
  };
  struct Step {
    std::span<const std::byte> observation;  // that the action was chosen from
    std::span<const std::byte> action;
    float q_taken = 0, q_max = 0;  // q(s, a); max_a q(s, a), or q(s, μ(s)) for continuous actions
    float reward = 0;              // of the step
    bool terminated = false, truncated = false;
    std::span<const std::byte> final_observation;  // if terminated or truncated
    std::uint64_t policy_version = 0;
    float log_mu = 0;  // log μ(a|s), for items with log-probabilities (spec.state)
    // The value of an actor-critic, for items with values, is q_taken.
    std::span<const float> state = {};  // recurrent state before the step, [state_columns]
  };
  TrajectoryBuilder(const Options& options, StreamId stream);

  // Adds one step.
  void Append(const Step& step);
  // Ends the episode because the step from `observation` is lost, as by a truncation; the next step
  // starts another one, and no item spans both. q_max: of `observation`; nullopt: unknown, and
  // items that would bootstrap from it are dropped.
  void Cut(std::span<const std::byte> observation, std::optional<float> q_max);
  // Sets the factor of later rewards in priorities, before they are clipped
  // (RewardStatistics::Scale).
  void SetRewardScale(double scale) { reward_scale_ = scale; }
  StreamId stream() const { return stream_; }
  std::size_t items() const { return items_.size(); }
  std::uint32_t frames() const { return frames_; }
  // Returns the frames and items since the last Take; the stream continues.
  Chunk Take(std::vector<Item>* items);

 private:
  struct Pending {  // a step whose item is incomplete
    std::uint64_t frame;
    float q_taken, q_max, reward;  // reward: scaled
    std::uint64_t policy_version;
    float log_mu;
  };
  void AppendFrame(const Step& step, bool final);
  // Completes the oldest pending item, with that bootstrap value.
  void EmitFirst(double bootstrap);
  // Keeps the recurrent state of a step from which an unroll will begin.
  void KeepState(std::span<const float> state);
  // Completes the unroll of all pending steps, with that bootstrap value.
  void EmitUnroll(double bootstrap);
  float PriorityOfUnroll(double bootstrap) const;
  Buffer StateOfUnroll();
  // Ends the episode of the pending steps.
  void Forget();
  // Completes all pending items at the end of an episode.
  void EmitAll(double bootstrap);
  double Clipped(double reward) const;

  const Options options_;
  const StreamId stream_;
  double reward_scale_ = 1;
  std::deque<Pending> pending_;  // at most n, or a whole unroll
  // Unrolls: step of the episode that the next Append adds, and the recurrent states before some
  // steps of the episode, in their order.
  std::int64_t episode_step_ = 0;
  std::deque<std::pair<std::int64_t, std::vector<float>>> states_;
  bool open_ = false;  // the last frame was acted on, and its episode continues
  std::uint64_t next_frame_ = 0;
  std::uint32_t frames_ = 0;  // since the last Take
  std::vector<std::byte> observation_, action_;
  std::vector<float> reward_, discount_;
  std::vector<std::uint8_t> final_;
  std::vector<Item> items_;
};

}  // namespace troop
