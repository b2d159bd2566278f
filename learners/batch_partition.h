#pragma once

#include <cstdint>

#include "collective/collective.h"
#include "core/base/status.h"

namespace troop {

// Schedule position where parameter shards apply the updates: several gradients may belong to one
// version, and other learners may advance the version.
struct TrainingProgress {
  std::uint64_t batches = 0;  // batches of the run before that of the next gradient
  double progress = 0;        // before the next gradient, [0, 1], for schedules
};

// One learner's part of batches that the algorithm chooses itself, from a data set: an optional
// interface of an Algorithm (Algorithm::batch_partition). Owner thread: the algorithm's.
class BatchPartition {
 public:
  virtual ~BatchPartition() = default;
  // Sets this learner's rank among those that share an update; it selects the part of a batch.
  virtual void SetRank(int rank, int ranks) = 0;
  // Sets the position of the next gradient. Until it is set, both fields follow from
  // Algorithm::updates().
  virtual void SetTrainingProgress(const TrainingProgress& training_progress) = 0;
  // True if ComputeGradient exchanges statistics with the other ranks of the update: then each of
  // them must call it for the same batch.
  virtual bool needs_group() const { return false; }
  // Sets the group for that, of the ranks of SetRank, which must outlive its use here; nullptr: no
  // group.
  virtual void SetGroup(Collective* group) { (void)group; }
  // The error that ended that group within ComputeGradient.
  virtual Status group_status() const { return Status::Ok(); }
};

}  // namespace troop
