#pragma once

#include <cstdint>
#include <optional>

#include "learners/algorithm.h"
#include "learners/training_config.h"

namespace troop {

// A learner's progress in a run whose updates the parameter shards apply: the number of the next
// batch, and the completed share of the run. Both follow from the shards' versions: version v
// follows v - 1 updates. Owner: the node's thread. O(1).
class ShardProgress {
 public:
  // `config` must outlive the progress.
  explicit ShardProgress(const TrainingConfig& config);

  // Records a pulled version. The first pull and one after a rollback of the shards set the number
  // of the next batch to that of the version. If each version has one batch, every pull does.
  // REQUIRES: version >= 1.
  void Pulled(std::uint64_t version);
  // Counts a gradient that was computed since the pull.
  void CountGradient() {
    ++*batches_;
    ++gradients_;
  }
  // Progress of the next gradient. `job_progress`: the share that applies if the run has no limit
  // of updates. REQUIRES: Pulled was called.
  TrainingProgress Next(double job_progress) const;
  // True if the pulled version follows all updates of the run.
  bool complete() const { return updates_max_ > 0 && version_ > std::uint64_t(updates_max_); }
  // Number of updates that the pulled version follows, at most run.max_updates.
  std::uint64_t updates() const;

 private:
  // True if each version has one batch: synchronous learners that pull after each push. Otherwise
  // each learner counts batches by itself, so that a slow one skips none of its share.
  static bool BatchesFollow(const TrainingConfig& config);

  const TrainingConfig* const config_;
  const std::int64_t updates_max_;  // run.max_updates; 0: no limit
  const bool batches_follow_;
  std::optional<std::uint64_t> batches_;  // of the run, before the next gradient
  std::uint64_t version_ = 0;             // pulled last
  std::int64_t gradients_ = 0;            // since then
};

}  // namespace troop
