// Implements the steps of runs without actors, which follow from the updates.
#include "learners/node/update_batch_source.h"

#include <algorithm>
#include <cmath>

namespace troop {

std::int64_t UpdateBatchSource::StepsAt(std::uint64_t updates, std::int64_t) const {
  const double share = double(updates) / double(std::max<std::int64_t>(1, config_.run.max_updates));
  return std::llround(std::min(1.0, share) * config_.run.total_steps);
}

// The coordinator ends the run by these.
void UpdateBatchSource::ReportSteps(std::uint64_t updates, HeartbeatRequest* report) const {
  report->steps_done = StepsAt(updates, 0);
}

}  // namespace troop
