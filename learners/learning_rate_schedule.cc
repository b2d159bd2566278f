// Implements the expected number of updates and the learning-rate schedule.

#include "learners/learning_rate_schedule.h"

#include <algorithm>
#include <cmath>

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
    : warmup_(config.optimizer.warmup_ratio),
      final_fraction_(config.optimizer.final_lr_fraction),
      update_(ShareOfAnUpdate(config)) {}

// Warmup, then linear decay; `over` is clamped so that the last update is inside the run.
double LearningRateSchedule::Fraction(double progress) const {
  const double over = std::clamp(progress, 0.0, 1 - update_);
  if (over + update_ < warmup_) return (over + update_) / warmup_;
  return 1 + (final_fraction_ - 1) * std::max(0.0, over - warmup_) / (1 - warmup_);
}

}  // namespace troop
