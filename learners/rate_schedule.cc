#include "learners/rate_schedule.h"

#include <algorithm>

namespace troop {

double ShareOfAnUpdate(const Config& config) {
  const Config::LearnerKeys& l = config.learner;
  double updates = l.total_steps;  // without a replay ratio: some number at least
  if (l.max_updates > 0) {
    updates = double(l.max_updates);
  } else if (config.replay.samples_per_insert > 0) {
    const auto learners = double(std::max<std::int64_t>(1, config.fleet.learners));
    updates = l.total_steps * config.replay.samples_per_insert / double(l.batch_size) / learners;
  }
  return 1 / std::max(1.0, updates);
}

RateSchedule::RateSchedule(const Config& config)
    : warmup_(config.optimizer.warmup),
      final_fraction_(config.optimizer.final_fraction),
      update_(ShareOfAnUpdate(config)) {}

double RateSchedule::Fraction(double progress) const {
  const double over = std::clamp(progress, 0.0, 1 - update_);
  if (over + update_ < warmup_) return (over + update_) / warmup_;
  return 1 + (final_fraction_ - 1) * std::max(0.0, over - warmup_) / (1 - warmup_);
}

}  // namespace troop
