#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/node.h"
#include "core/base/status.h"
#include "learners/algorithm.h"
#include "learners/sync/updater.h"
#include "learners/training_config.h"
#include "paramserver/service/local_replica.h"

namespace troop {

// One gradient at the local replica of the shards' weights, in a job: adopts the weights, computes
// the gradient of a batch, clips it, and steps the replica. From Start to TakeDone the job owns the
// algorithm, the replica, and the update job. Owner: the node's thread, which must keep this object
// until the job ends.
class ReplicaStep {
 public:
  // All pointers must outlive the steps.
  struct Context {
    const TrainingConfig* config = nullptr;
    std::int32_t learner = 0;  // index of the role, for failpoints
    Executor* executor = nullptr;
    Algorithm* algorithm = nullptr;
    LocalReplica* replica = nullptr;
  };
  // REQUIRES: the algorithm has an external_optimizer().
  explicit ReplicaStep(const Context& context)
      : context_(context),
        weights_(*context.algorithm->external_optimizer()),
        partition_(context.algorithm->batch_partition()) {}

  // Starts a job for one batch of `job`; adds its priorities. REQUIRES: no job is running; the
  // replica has pulled, and is not about to push.
  void Start(UpdateJob* job, std::size_t batch, const TrainingProgress& progress);
  // Returns true once after the job has ended.
  bool TakeDone() { return context_.executor->TakeDone(running_); }
  // Result of the last step. If it failed, the replica was not stepped.
  const Result<LossReport>& report() const { return report_; }
  float learning_rate() const { return learning_rate_; }

 private:
  void Compute(UpdateJob* job, std::size_t batch, const TrainingProgress& progress);
  void CorruptIfDrawn();

  const Context context_;
  ExternalOptimizer& weights_;
  BatchPartition* const partition_;  // nullptr: not supported
  Executor::Job running_ = 0;
  Result<LossReport> report_ = LossReport{};
  float learning_rate_ = 0;
  std::int64_t gradients_ = 0;  // computed so far, for failpoints
  bool has_started_ = false;    // at least once
};

}  // namespace troop
