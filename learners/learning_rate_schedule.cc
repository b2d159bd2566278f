// Implements the expected number of updates and the learning-rate schedule.

#include "learners/learning_rate_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace troop {

double UpdatesExpected(const TrainingConfig& config, int learners) {
  const LearnerConfig& l = config.learner;
  if (config.run.max_updates > 0) return double(config.run.max_updates);
  if (config.rollout_steps > 0) {
    const auto all = double(config.rollout_steps * std::max<std::int64_t>(1, config.learners));
    return std::max(1.0, std::floor(config.run.total_steps / all) *
                             double(l.rollout_epochs * l.rollout_minibatches));
  }
  // The number of unrolls depends on where episodes end.
  if (config.replay.samples_per_insert <= 0 || config.unroll_length > 0) return 0;
  // The rate limiter samples nothing for the first min_items.
  const double paid =
      config.run.total_steps * double(config.insert_copies) - double(config.replay.min_items);
  const double samples = std::max(0.0, paid) * config.replay.samples_per_insert;
  return std::max(1.0,
                  samples / double(l.batch_size - DemonstrationRows(l)) / std::max(1, learners));
}

double ShareOfAnUpdate(const TrainingConfig& config) {
  const double updates = UpdatesExpected(config, int(config.learners));
  // Without a replay ratio the number is unknown; at least one update per step keeps the share
  // small.
  return 1 / (updates > 0 ? updates : std::max(1.0, double(config.run.total_steps)));
}

// All in shares of the run, so the schedule does not need N itself.
LearningRateSchedule::LearningRateSchedule(const TrainingConfig& config)
    : kind_(config.optimizer.lr_schedule),
      warmup_(config.optimizer.warmup_ratio),
      final_fraction_(config.optimizer.final_lr_fraction),
      milestones_(config.optimizer.lr_milestones),
      milestone_factor_(config.optimizer.lr_milestone_factor),
      update_(ShareOfAnUpdate(config)) {}

// Warmup, then the decay; `over` is clamped so that the last update is inside the run.
double LearningRateSchedule::Fraction(double progress) const {
  const double over = std::clamp(progress, 0.0, 1 - update_);
  if (over + update_ < warmup_) return (over + update_) / warmup_;
  const double x = std::max(0.0, over - warmup_) / (1 - warmup_);
  switch (kind_) {
    case LrSchedule::kLinear:
      return 1 + (final_fraction_ - 1) * x;
    case LrSchedule::kCosine:
      return final_fraction_ + (1 - final_fraction_) * (1 + std::cos(std::numbers::pi * x)) / 2;
    case LrSchedule::kStep:
      break;
  }
  // A share of the run, such as 3 / 10 of it, may be rounded to either side of the milestone.
  const double now = over + 1e-6 * update_;
  const auto passed = std::ranges::count_if(milestones_, [now](double m) { return m <= now; });
  return std::pow(milestone_factor_, double(passed));
}

}  // namespace troop
