// Implements the building of frames and n-step items.

#include "actors/trajectory_builder.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/base/check.h"

namespace troop {
namespace {

// A sum of huge rewards must stay finite as f32, or the replay would reject the item.
constexpr double kPriorityMax = std::numeric_limits<float>::max();

}  // namespace

TrajectoryBuilder::TrajectoryBuilder(const Options& options, StreamId stream)
    : options_(options), stream_(stream) {
  TROOP_CHECK(options.n_step >= 1, "n_step is {}", options.n_step);
  TROOP_CHECK(options.unroll >= 0, "unroll is {}", options.unroll);
  TROOP_CHECK(options.copies >= 1, "copies is {}", options.copies);
}

// A step completes the item of n steps before, or the unroll before it.
void TrajectoryBuilder::Append(const Step& step) {
  // The pending steps bootstrap from this one's observation.
  if (options_.unroll > 0) {
    if (pending_.size() == std::size_t(options_.unroll)) EmitUnroll(step.q_max);
  } else if (pending_.size() == std::size_t(options_.n_step)) {
    EmitFirst(step.q_max);
  }
  AppendFrame(step, false);
  // The first step of an unroll; the learner computes the states of the others.
  if (pending_.empty() && options_.state_columns > 0) {
    TROOP_CHECK(step.state.size() == std::size_t(options_.state_columns), "a state of {} columns",
                step.state.size());
    state_.assign(step.state.begin(), step.state.end());
  }
  pending_.push_back({next_frame_ - 1, step.q_taken, step.q_max, float(step.reward * reward_scale_),
                      step.policy_version, step.log_mu});
  // The end of an episode completes all pending items, with fewer than n steps.
  if (!step.terminated && !step.truncated) return;
  AppendFrame(step, true);
  EmitAll(step.terminated ? 0 : step.q_max);
}

// Like a truncation: the step before keeps discount 1, so that its items bootstrap.
void TrajectoryBuilder::Cut(std::span<const std::byte> observation, std::optional<float> q_max) {
  if (!open_) return;
  AppendFrame({.final_observation = observation}, true);
  if (q_max) EmitAll(*q_max);
  pending_.clear();
}

// A final frame has no action, reward 0 and discount 0.
void TrajectoryBuilder::AppendFrame(const Step& step, bool final) {
  const auto observation = final ? step.final_observation : step.observation;
  TROOP_CHECK(observation.size() == options_.spec.observation.bytes(), "an observation of {} bytes",
              observation.size());
  observation_.insert(observation_.end(), observation.begin(), observation.end());
  if (final) {
    action_.resize(action_.size() + options_.spec.action.bytes());
  } else {
    action_.insert(action_.end(), step.action.begin(), step.action.end());
  }
  reward_.push_back(final ? 0 : step.reward);
  discount_.push_back(final || step.terminated ? 0 : 1);
  final_.push_back(final);
  open_ = !final;
  ++next_frame_;
  ++frames_;
}

double TrajectoryBuilder::Clipped(double reward) const {
  const double clip = options_.reward_clip;
  return clip > 0 ? std::clamp(reward, -clip, clip) : reward;
}

// With n-step items there is one per pending step, each with fewer than n steps.
void TrajectoryBuilder::EmitAll(double bootstrap) {
  if (options_.unroll > 0 && !pending_.empty()) EmitUnroll(bootstrap);
  while (!pending_.empty()) EmitFirst(bootstrap);
}

// The policy version is that of the first step, which has the oldest weights.
void TrajectoryBuilder::EmitUnroll(double bootstrap) {
  double sum = 0;
  for (std::size_t t = 0; t < pending_.size(); ++t) {
    const Pending& p = pending_[t];
    const double next = t + 1 < pending_.size() ? double(pending_[t + 1].q_max) : bootstrap;
    sum += std::abs(Clipped(p.reward) + options_.gamma * next - double(p.q_taken));
  }
  Buffer state;
  if (options_.spec.state) {
    std::vector<float> values(std::size_t(options_.spec.state->shape.elements()));
    std::ranges::copy(state_, values.begin());
    float* const log_mu = values.data() + state_.size();
    for (std::size_t t = 0; t < pending_.size(); ++t) log_mu[t] = pending_[t].log_mu;
    state = Buffer::Copy(std::as_bytes(std::span<const float>(values)));
  }
  items_.insert(items_.end(), std::size_t(options_.copies),
                {.stream = stream_,
                 .first_frame = pending_.front().frame,
                 .length = std::uint32_t(pending_.size()),
                 .priority = float(std::min(sum / double(pending_.size()), kPriorityMax)),
                 .policy_version = pending_.front().policy_version,
                 .state = state});
  pending_.clear();
}

// Discounted sum over the pending rewards, then the bootstrap value.
void TrajectoryBuilder::EmitFirst(double bootstrap) {
  double value = 0, scale = 1;
  for (const Pending& p : pending_) {
    value += scale * Clipped(p.reward);
    scale *= options_.gamma;
  }
  value += scale * bootstrap;
  const Pending& first = pending_.front();
  items_.insert(items_.end(), std::size_t(options_.copies),
                {.stream = stream_,
                 .first_frame = first.frame,
                 .length = std::uint32_t(pending_.size()),
                 .priority = float(std::min(std::abs(value - first.q_taken), kPriorityMax)),
                 .policy_version = first.policy_version});
  pending_.pop_front();
}

// The stream's frame numbers continue after the chunk.
Chunk TrajectoryBuilder::Take(std::vector<Item>* items) {
  items->insert(items->end(), items_.begin(), items_.end());
  items_.clear();
  Chunk chunk{.stream = stream_, .first_frame = next_frame_ - frames_, .frames = frames_};
  chunk.observation = Buffer::Copy(std::span<const std::byte>(observation_));
  chunk.action = Buffer::Copy(std::span<const std::byte>(action_));
  chunk.reward = Buffer::Copy(std::as_bytes(std::span<const float>(reward_)));
  chunk.discount = Buffer::Copy(std::as_bytes(std::span<const float>(discount_)));
  chunk.final = Buffer::Copy(std::as_bytes(std::span<const std::uint8_t>(final_)));
  frames_ = 0;
  observation_.clear();
  action_.clear();
  reward_.clear();
  discount_.clear();
  final_.clear();
  return chunk;
}

}  // namespace troop
