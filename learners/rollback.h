#pragma once

#include <cstdint>
#include <string>

#include "core/storage/storage.h"
#include "core/tensor/spec.h"
#include "learners/algorithm.h"
#include "learners/training_config.h"

namespace troop {

// Policy for non-finite values: an update with one is skipped. After kSkippedMax in a row, or at
// once if a weight is not finite, the learner rolls back to the last good version. It gives up
// after kRollbacksMax rollbacks, unless one of them is followed by kGoodMin good updates, which
// reset the count.
class RollbackRule {
 public:
  static constexpr int kSkippedMax = 100;
  static constexpr int kRollbacksMax = 3;
  static constexpr int kGoodMin = 1000;

  void CountGood() {
    skipped_row_ = 0;
    if (++good_ >= kGoodMin) rollbacks_row_ = 0;
  }
  // Returns true if a rollback is due.
  bool CountSkipped() { return ++skipped_row_ >= kSkippedMax; }
  // Counts a rollback; returns false if it exceeds kRollbacksMax.
  bool GoBack() {
    skipped_row_ = good_ = 0;
    return ++rollbacks_row_ <= kRollbacksMax;
  }

 private:
  int skipped_row_ = 0;    // updates, since the last good one
  int good_ = 0;           // updates, since the last rollback
  int rollbacks_row_ = 0;  // each with fewer than kGoodMin good updates after it
};

// Resets `algorithm` to the newest complete checkpoint with finite values, or to the weights of a
// new run if none can be loaded. Returns a description of what was restored. Blocks on the disk.
// Errors: those of MakeAlgorithm and Algorithm::RollBack.
Result<std::string> RollBack(Algorithm* algorithm, Storage* run, const TrainingConfig& config,
                             const EnvSpec& env);

// Loads the newest complete checkpoint with finite values, or the state of a new run if there is
// none. All tensor-parallel ranks load the same checkpoint; `tensor` is the part of the model that
// this rank trains. Blocks on the disk. Errors: those of the storage, and of Algorithm::SetState.
Status LoadNewestState(Algorithm* algorithm, Storage* run, const TrainingConfig& config,
                       const EnvSpec& env, const TensorParallelRank& tensor);

}  // namespace troop
