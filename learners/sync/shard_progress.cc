// Implements a learner's progress from the versions of the parameter shards.
#include "learners/sync/shard_progress.h"

#include <algorithm>
#include <utility>

#include "learners/supervised/dataset.h"
#include "paramserver/service/options_from_config.h"

namespace troop {

ShardProgress::ShardProgress(const TrainingConfig& config)
    : config_(&config),
      updates_max_(config.run.max_updates),
      batches_follow_(BatchesFollow(config)) {}

// True if each version of the shards is one update of all learners, so that versions count them.
bool ShardProgress::BatchesFollow(const TrainingConfig& config) {
  return HasSynchronousShards(config.paramserver) &&
         config.paramserver.pull_every == config.paramserver.push_every;
}

// The count of batches is computed again after a shard has lost updates.
void ShardProgress::Pulled(std::uint64_t version) {
  const bool went_back = version < std::exchange(version_, version);
  if (!batches_ || batches_follow_ || went_back) {
    batches_ = BatchesOfUpdates(*config_, version - 1);
  }
  gradients_ = 0;
}

// Between pulls the progress grows with the local steps.
TrainingProgress ShardProgress::Next(double job_progress) const {
  const double pushes = double(gradients_) / double(config_->paramserver.push_every);
  const double over = (double(version_ - 1) + pushes) / double(updates_max_);
  return {.batches = *batches_, .progress = updates_max_ > 0 ? over : job_progress};
}

std::uint64_t ShardProgress::updates() const {
  return complete() ? std::uint64_t(updates_max_) : version_ - 1;
}

}  // namespace troop
