#pragma once

#include "core/config.h"

namespace troop {

// How many updates each of `learners` makes in a run: learner.max_updates, or what the replay ratio
// allows for all items (actor.copies a step) but the first replay.min_items, for which nothing is
// sampled; at least 1. 0: no setting says it.
double UpdatesExpected(const Config& config, int learners);

// Share of the run that one update is, as LearnerNode counts it; where their number is not known,
// less.
double ShareOfAnUpdate(const Config& config);

// The learning rate over a run of N updates, of which W = optimizer.warmup * N warm up: update u,
// from 0, has (u + 1) / W of it at first, and from update W on, which has all of it, a share that
// falls by the same amount with each update and would be optimizer.final_fraction at update N. So
// the last update learns also where that is 0.
class RateSchedule {
 public:
  explicit RateSchedule(const Config& config);
  // Share of the learning rate, (0, 1], of an update. progress: share of the run that is over
  // before it, u / N.
  double Fraction(double progress) const;

 private:
  const double warmup_, final_fraction_;
  const double update_;  // share of the run that one update is; less where N is not known
};

}  // namespace troop
