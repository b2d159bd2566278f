#include <deque>

#include "kernels/finite.h"
#include "learners/updater.h"

namespace troop {
namespace {

// Two jobs in flight keep the compute thread fed while the node exchanges messages; more would only
// make priorities and published weights older.
constexpr std::size_t kJobsMax = 2;
constexpr std::size_t kBatchesMax = 16;

class LocalUpdater final : public Updater {
 public:
  LocalUpdater(Algorithm* algorithm, Executor* executor, std::uint64_t incarnation)
      : algorithm_(algorithm), executor_(executor), incarnation_(incarnation) {}

  Status Poll(Time) override { return Status::Ok(); }
  bool CanTake() const override { return jobs_.size() < kJobsMax; }
  std::size_t batches_max() const override { return kBatchesMax; }
  bool busy() const override { return !jobs_.empty(); }
  std::uint64_t generation() const override { return incarnation_; }

  void Take(std::unique_ptr<UpdateJob> job) override {
    Result<Executor::Job> id =
        executor_->Submit("update", [work = job.get(), algorithm = algorithm_] {
          for (const SampleBatch& batch : work->batches) {
            work->priority.emplace_back(batch.key.size());
            Result<LossReport> report =
                algorithm->Update(batch, work->progress, work->priority.back());
            if (report.ok()) {
              work->last = *report;
            } else {
              work->status = report.status();
              work->priority.back().clear();
            }
          }
          FinishJob(*algorithm, work);
        });
    TROOP_CHECK(id.ok(), "{}", id.status().ToString());  // kJobsMax is below any executor's bound
    jobs_.push_back({*id, std::move(job)});
  }

  std::unique_ptr<UpdateJob> Collect() override {
    if (jobs_.empty() || !executor_->TakeDone(jobs_.front().id)) return nullptr;
    std::unique_ptr<UpdateJob> job = std::move(jobs_.front().job);
    jobs_.pop_front();
    return job;
  }

 private:
  struct Submitted {
    Executor::Job id = 0;
    std::unique_ptr<UpdateJob> job;
  };
  Algorithm* const algorithm_;
  Executor* const executor_;
  const std::uint64_t incarnation_;
  std::deque<Submitted> jobs_;  // oldest first
};

}  // namespace

void FinishJob(Algorithm& algorithm, UpdateJob* job) {
  job->cost = algorithm.TakeCost();
  job->updates = algorithm.updates();
  const bool good = job->status.ok() && (!job->publish || AllFinite(algorithm.value()));
  if (!good) job->weights = algorithm.CheckNumbers();
  if (job->publish && job->weights.ok()) {
    job->value = Buffer::Copy(std::as_bytes(algorithm.WholeValue()));
  }
}

std::unique_ptr<Updater> MakeLocalUpdater(Algorithm* algorithm, Executor* executor,
                                          std::uint64_t incarnation) {
  return std::make_unique<LocalUpdater>(algorithm, executor, incarnation);
}

}  // namespace troop
