// Implements the linear schedule of the importance-weight exponent β.

#include "learners/rl/beta_schedule.h"

#include <algorithm>
#include <cmath>

#include "learners/learning_rate_schedule.h"

namespace troop {

// replay.final_beta = 0: β stays constant.
BetaSchedule::BetaSchedule(const TrainingConfig& config)
    : first_(config.replay.beta),
      last_(config.replay.final_beta > 0 ? config.replay.final_beta : first_),
      end_(1 - ShareOfAnUpdate(config)) {}

double BetaSchedule::Beta(double progress) const {
  // end_ is the progress before the last update, so that this update uses exactly last_.
  if (progress <= 0) return first_;
  return progress < end_ ? std::lerp(first_, last_, progress / end_) : last_;
}

}  // namespace troop
