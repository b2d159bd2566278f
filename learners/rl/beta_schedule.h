#pragma once

#include "learners/training_config.h"

namespace troop {

// β, the exponent of the importance weights, over a run: linear from replay.beta at the first
// update to replay.final_beta at the last one (Schaul et al. 2016, sec. 3.4, where it ends at 1).
class BetaSchedule {
 public:
  explicit BetaSchedule(const TrainingConfig& config);
  // progress: completed share of the run before the update.
  double Beta(double progress) const;

 private:
  const double first_, last_;
  const double end_;  // progress before the last update
};

}  // namespace troop
