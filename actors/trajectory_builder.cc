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
  TROOP_CHECK(options.copies >= 1, "copies is {}", options.copies);
}

// A step completes the item of n steps before.
void TrajectoryBuilder::Append(const Step& step) {
  // The oldest pending step bootstraps from this one's observation.
  if (pending_.size() == std::size_t(options_.n_step)) EmitFirst(step.q_max);
  AppendFrame(step, false);
  pending_.push_back(
      {next_frame_ - 1, step.q_taken, float(step.reward * reward_scale_), step.policy_version});
  // The end of an episode completes all pending items, with fewer than n steps.
  if (!step.terminated && !step.truncated) return;
  AppendFrame(step, true);
  while (!pending_.empty()) EmitFirst(step.terminated ? 0 : step.q_max);
}

// Like a truncation: the step before keeps discount 1, so that its items bootstrap.
void TrajectoryBuilder::Cut(std::span<const std::byte> observation, std::optional<float> q_max) {
  if (!open_) return;
  AppendFrame({.final_observation = observation}, true);
  while (q_max && !pending_.empty()) EmitFirst(*q_max);
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

// Discounted sum over the pending rewards, then the bootstrap value.
void TrajectoryBuilder::EmitFirst(double bootstrap) {
  double value = 0, scale = 1;
  for (const Pending& p : pending_) {
    const double clip = options_.reward_clip;
    value += scale * (clip > 0 ? std::clamp<double>(p.reward, -clip, clip) : p.reward);
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
