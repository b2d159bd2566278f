// Implements the updater with several threads on shared weights (Hogwild).

#include <mutex>
#include <utility>

#include "core/config/enum_format.h"
#include "learners/sync/update_queue.h"
#include "learners/sync/updater.h"
#include "nn/parallel/hogwild_arena.h"

namespace troop {
namespace {

constexpr std::size_t kJobsMax = 2;      // as in local_updater.cc
constexpr std::size_t kBatchesMax = 32;  // several per thread

// Each job runs its batches on all threads; the arena holds the shared weights in between.
class HogwildUpdater final : public Updater {
 public:
  HogwildUpdater(const HogwildUpdaterOptions& options,
                 std::vector<std::unique_ptr<Algorithm>> replicas)
      : options_(options), replicas_(std::move(replicas)), jobs_(options.executor) {}

  Status Poll(Time) override { return Status::Ok(); }
  bool CanTake() const override { return jobs_.size() < kJobsMax; }
  std::size_t batches_max() const override { return kBatchesMax; }
  bool busy() const override { return jobs_.size() > 0; }
  std::uint64_t generation() const override { return options_.incarnation; }
  // The next job copies the algorithm's state to the arena again.
  void StateChanges() override { fresh_ = false; }

  void Take(std::unique_ptr<UpdateJob> job) override {
    const bool fresh = std::exchange(fresh_, true);
    const auto work = [this, fresh, job = job.get()] {
      if (!fresh) Begin();
      Run(job);
      FinishJob(*options_.algorithm, job);
    };
    jobs_.Submit(work, std::move(job));
  }

  std::unique_ptr<UpdateJob> Collect() override { return jobs_.Collect(); }

 private:
  // These run in jobs of the executor.
  void Begin();
  void Run(UpdateJob* job);
  void Update(Algorithm* own, UpdateJob* job, std::size_t batch);
  void StepRows(const RowGradient& gradient, float learning_rate);

  const HogwildUpdaterOptions options_;
  const std::vector<std::unique_ptr<Algorithm>> replicas_;  // for all threads but the first
  std::vector<float> value_;                                // memory of the arena
  std::unique_ptr<HogwildArena> arena_;
  std::uint64_t updates_before_ = 0;  // updates before the arena's first step
  std::uint64_t job_begin_ = 0;       // updates before the current job
  std::mutex mutex_;                  // protects last and status of the current job
  UpdateQueue jobs_;
  bool fresh_ = false;  // the arena holds the algorithm's weights
};

// Copies the algorithm's state to the arena and the replicas: at first, and after a rollback.
void HogwildUpdater::Begin() {
  Algorithm& algorithm = *options_.algorithm;
  value_.assign(algorithm.value().begin(), algorithm.value().end());
  arena_ = *HogwildArena::Make(
      options_.config->optimizer, value_,
      &algorithm.external_optimizer()->optimizer());  // cannot fail for these options
  updates_before_ = algorithm.updates() - arena_->steps();
  const TensorFile state = algorithm.State();
  for (const auto& replica : replicas_) {
    const Status status = replica->SetState(state);
    TROOP_CHECK(status.ok(), "{}", status.ToString());
  }
}

// Then the algorithm adopts the arena's weights, as FinishJob expects them.
void HogwildUpdater::Run(UpdateJob* job) {
  for (const SampleBatch& batch : job->batches) job->priority.emplace_back(batch.key.size());
  Algorithm& algorithm = *options_.algorithm;
  job_begin_ = updates_before_ + arena_->steps();
  // Returns when all batches of the job are done.
  RunHogwild(int(replicas_.size()) + 1, std::int64_t(job->batches.size()),
             [&](int thread, std::int64_t batch) {
               Algorithm* own = thread == 0 ? &algorithm : replicas_[std::size_t(thread) - 1].get();
               Update(own, job, std::size_t(batch));
             });
  algorithm.external_optimizer()->ReplaceWeights(updates_before_ + arena_->steps(), value_);
  arena_->CountSteps();
}

// Steps the elements of the rows only, so that threads with other rows do not meet.
void HogwildUpdater::StepRows(const RowGradient& gradient, float learning_rate) {
  std::vector<std::int32_t> index;
  index.reserve(gradient.values.size());
  for (const std::int32_t row : gradient.rows) {
    for (std::int64_t k = 0; k < gradient.width; ++k)
      index.push_back(std::int32_t(std::int64_t(row) * gradient.width + k));
  }
  arena_->StepSparse(index, gradient.values, 1, learning_rate);
}

// Runs on any thread: read the weights, compute on a private replica, step without a lock.
void HogwildUpdater::Update(Algorithm* own, UpdateJob* job, std::size_t batch) {
  // Other threads may step during Read, so the copy can mix versions.
  std::vector<float> value(std::size_t(arena_->size()));
  const std::uint64_t updates = updates_before_ + arena_->steps();
  arena_->Read(value);
  ExternalOptimizer& weights = *own->external_optimizer();
  weights.ReplaceWeights(updates, value);
  // Steps that begin at the same count have different batches.
  if (BatchPartition* const partition = own->batch_partition(); partition != nullptr) {
    partition->SetTrainingProgress(
        {.batches = job_begin_ + batch, .progress = job->ProgressAt(batch)});
  }
  const Result<LossReport> report = own->ComputeGradient(job->batches[batch], job->priority[batch]);
  if (report.ok()) {
    weights.Clip(report->gradient_norm, own->gradient());
    const float rate = own->LearningRate(job->ProgressAt(batch));
    if (RowGradients* const rows = own->row_gradients(); rows != nullptr) {
      StepRows(rows->row_gradient().sum(), rate);
    } else {
      arena_->Step(own->gradient(), 1, rate);
    }
  }
  // The job keeps the results of the batch that finishes last.
  const std::lock_guard lock(mutex_);
  if (report.ok())
    job->last = *report;
  else
    job->Skip(batch, report.status());
}

}  // namespace

Result<std::unique_ptr<Updater>> MakeHogwildUpdater(const HogwildUpdaterOptions& options) {
  if (options.algorithm->external_optimizer() == nullptr) {
    return InvalidArgument("learner.algorithm = \"{}\" does not support learner.hogwild_threads",
                           AlgorithmName(options.config->learner));
  }
  // Thread 0 uses the caller's algorithm.
  std::vector<std::unique_ptr<Algorithm>> replicas;
  for (std::int64_t i = 1; i < options.config->learner.hogwild_threads; ++i) {
    TROOP_ASSIGN_OR_RETURN(replicas.emplace_back(), MakeAlgorithm(*options.config, *options.env));
  }
  return std::unique_ptr<Updater>(std::make_unique<HogwildUpdater>(options, std::move(replicas)));
}

}  // namespace troop
