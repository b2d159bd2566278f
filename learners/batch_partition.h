#pragma once

#include <cstdint>

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
};

}  // namespace troop
