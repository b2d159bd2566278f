// Implements one gradient at the local replica of the shards' weights.
#include "learners/sync/replica_step.h"

#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/base/failpoint.h"

namespace troop {
namespace {

// Factor of a gradient that a test corrupts (Failpoint::kLearnerPush), as from errors of that size
// and opposite sign. A squared loss grows by its square.
constexpr float kCorruptionScale = -100;
// The first gradients are not corrupted: the outlier guard is calibrated with them.
constexpr std::int64_t kSoundFirst = 100;

}  // namespace

void ReplicaStep::Start(UpdateJob* job, std::size_t batch, const TrainingProgress& progress) {
  // Only the first job reports a base version; the others continue from it. Version 1 is the
  // initial weights.
  if (!std::exchange(has_started_, true)) job->before = context_.replica->clock() - 1;
  Result<Executor::Job> id = context_.executor->Submit(
      "gradient", [this, job, batch, progress] { Compute(job, batch, progress); });
  TROOP_CHECK(id.ok(), "{}", id.status().ToString());
  running_ = *id;
}

// Runs in the job.
void ReplicaStep::Compute(UpdateJob* job, std::size_t batch, const TrainingProgress& progress) {
  Algorithm& algorithm = *context_.algorithm;
  LocalReplica& replica = *context_.replica;
  weights_.ReplaceWeights(replica.clock() - 1, replica.value());
  if (partition_ != nullptr) partition_->SetTrainingProgress(progress);
  const SampleBatch& samples = job->batches[batch];
  std::vector<float>& priority = job->priority.emplace_back(samples.key.size());
  report_ = algorithm.ComputeGradient(samples, priority);
  if (!report_.ok()) return;
  weights_.Clip(report_->gradient_norm, algorithm.gradient());
  CorruptIfDrawn();
  learning_rate_ = algorithm.LearningRate(job->ProgressAt(batch));
  replica.Step(algorithm.gradient(), learning_rate_);
}

// Failure injection for tests of the shards' outlier guard.
void ReplicaStep::CorruptIfDrawn() {
  if (++gradients_ <= kSoundFirst) return;
  const GradientCorruption corruption = DrawGradientCorruption(
      Failpoint::kLearnerPush, {.run_seed = std::uint64_t(context_.config->seed),
                                .index = std::uint64_t(context_.learner),
                                .episode = std::uint64_t(gradients_)});
  if (corruption == GradientCorruption::kNone) return;
  for (float& g : context_.algorithm->gradient()) g *= kCorruptionScale;
  if (corruption == GradientCorruption::kGradientAndLoss)
    report_->loss *= kCorruptionScale * kCorruptionScale;
}

}  // namespace troop
