// Implements the building of frames and n-step items.

#include "actors/experience/trajectory_builder.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/base/check.h"
#include "kernels/loss/value_rescaling.h"

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
  TROOP_CHECK(options.unroll > 0 || options.state_columns == 0, "transitions with states");
  TROOP_CHECK(options.unroll == 0 || options.overlap < options.unroll, "overlap is {}",
              options.overlap);
}

// A step completes the item of n steps before, or the unroll before it.
void TrajectoryBuilder::Append(const Step& step) {
  // The pending steps bootstrap from this one's observation.
  if (options_.unroll > 0) {
    if (pending_.size() == std::size_t(options_.unroll)) {
      EmitUnroll(step.q_max);
      // The next one begins with the last steps of this one.
      pending_.erase(pending_.begin(), pending_.end() - options_.overlap);
    }
  } else if (pending_.size() == std::size_t(options_.n_step)) {
    EmitFirst(step.q_max);
  }
  AppendFrame(step, false);
  if (options_.state_columns > 0) KeepState(step.state);
  ++episode_step_;
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
  Forget();
}

// Unrolls begin every `unroll` - `overlap` steps, and their burn-in before that; the first ones at
// the start of the episode.
void TrajectoryBuilder::KeepState(std::span<const float> state) {
  TROOP_CHECK(state.size() == std::size_t(options_.state_columns), "a state of {} columns",
              state.size());
  const std::int64_t period = options_.unroll - options_.overlap;
  if (episode_step_ > 0 && (episode_step_ + options_.burn_in) % period != 0) return;
  states_.emplace_back(episode_step_, std::vector<float>(state.begin(), state.end()));
}

// The frames stay: they belong to the items that are complete.
void TrajectoryBuilder::Forget() {
  pending_.clear();
  states_.clear();
  episode_step_ = 0;
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
  if (options_.unroll > 0) {
    // The last pending step is in no unroll yet.
    if (!pending_.empty()) EmitUnroll(bootstrap);
    Forget();
  }
  while (!pending_.empty()) EmitFirst(bootstrap);
}

// n-step TD errors as the learner's, which bootstrap within the unroll as far as it reaches.
float TrajectoryBuilder::PriorityOfUnroll(double bootstrap) const {
  const std::size_t length = pending_.size();
  double sum = 0, largest = 0;
  for (std::size_t t = 0; t < length; ++t) {
    const std::size_t end = std::min(length, t + std::size_t(options_.unroll_n_step));
    double value = 0, scale = 1;
    for (std::size_t k = t; k < end; ++k) {
      value += scale * Clipped(pending_[k].reward);
      scale *= options_.gamma;
    }
    const double next = end < length ? double(pending_[end].q_max) : bootstrap;
    value += scale * (options_.rescale ? UnrescaleValue(next) : next);
    const double target = options_.rescale ? RescaleValue(value) : value;
    const double error = std::abs(target - double(pending_[t].q_taken));
    sum += error;
    largest = std::max(largest, error);
  }
  const double share = options_.largest_share;
  const double priority = share * largest + (1 - share) * sum / double(length);
  return float(std::min(priority, kPriorityMax));
}

// The recurrent state before the burn-in, or before the episode, then the numbers of the steps
// (NumbersPerStep): the log-probabilities, then the values, for which there is room.
Buffer TrajectoryBuilder::StateOfUnroll() {
  if (!options_.spec.state) return {};
  std::vector<float> values(std::size_t(options_.spec.state->shape.elements()));
  auto to = values.begin();
  if (options_.state_columns > 0) {
    const std::int64_t first = episode_step_ - std::int64_t(pending_.size());
    const std::int64_t wanted = std::max<std::int64_t>(0, first - options_.burn_in);
    while (!states_.empty() && states_.front().first < wanted) states_.pop_front();
    TROOP_CHECK(!states_.empty() && states_.front().first == wanted,
                "no recurrent state of step {}", wanted);
    to = std::ranges::copy(states_.front().second, to).out;
  }
  // The spec of the trajectory decides how many of them an item carries.
  const std::ptrdiff_t room = values.end() - to, unroll = options_.unroll;
  for (std::ptrdiff_t t = 0; t < std::ssize(pending_); ++t) {
    if (room >= unroll) to[t] = pending_[std::size_t(t)].log_mu;
    if (room >= 2 * unroll) to[unroll + t] = pending_[std::size_t(t)].q_taken;
  }
  return Buffer::Copy(std::as_bytes(std::span<const float>(values)));
}

// The policy version is that of the first step, which has the oldest weights.
void TrajectoryBuilder::EmitUnroll(double bootstrap) {
  items_.insert(items_.end(), std::size_t(options_.copies),
                {.stream = stream_,
                 .first_frame = pending_.front().frame,
                 .length = std::uint32_t(pending_.size()),
                 .burn_in = std::uint32_t(options_.burn_in),
                 .priority = PriorityOfUnroll(bootstrap),
                 .policy_version = pending_.front().policy_version,
                 .state = StateOfUnroll()});
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
