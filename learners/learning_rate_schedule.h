#pragma once

#include <vector>

#include "learners/training_config.h"

namespace troop {

// Expected number of updates of each of `learners` learners in a run: run.max_updates, or the
// number that the replay ratio allows for all items (actor.insert_copies per step) after the first
// replay.min_items, which are not sampled; at least 1. 0: unknown, because the config sets no limit
// or items are unrolls, whose number depends on where episodes end.
double UpdatesExpected(const TrainingConfig& config, int learners);

// Share of the run that one update makes up, as LearnerNode counts it; a smaller value if the
// number of updates is unknown.
double ShareOfAnUpdate(const TrainingConfig& config);

// Learning-rate schedule of a run of N updates, with W = optimizer.warmup_ratio * N. Update u,
// counted from 0, uses the fraction (u + 1) / W during warmup. From update W, which uses the full
// rate, the fraction f depends on optimizer.lr_schedule, with x = (u - W) / (N - W) and
// F = optimizer.final_lr_fraction, which it would reach at update N, so that even the last update
// learns if F is 0:
//   linear  f = 1 + (F - 1) x
//   cosine  f = F + (1 - F) (1 + cos(pi x)) / 2
//   step    f = optimizer.lr_milestone_factor ^ (number of milestones m with m N <= u)
class LearningRateSchedule {
 public:
  explicit LearningRateSchedule(const TrainingConfig& config);
  // Fraction of the learning rate, (0, 1], of an update. progress: completed share of the run
  // before it, u / N.
  double Fraction(double progress) const;

 private:
  const LrSchedule kind_;
  const double warmup_, final_fraction_;
  const std::vector<double> milestones_;
  const double milestone_factor_;
  const double update_;  // share of the run per update; smaller if N is unknown
};

}  // namespace troop
