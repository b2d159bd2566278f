// Implements the updater of a single learner, and the common end of a job.

#include "kernels/elementwise/is_finite.h"
#include "learners/sync/update_queue.h"
#include "learners/sync/updater.h"
#include "net/wire/shared_memory.h"

namespace troop {
namespace {

// Two jobs in flight keep the compute thread busy while the node exchanges messages; more would
// only delay priorities and published weights.
constexpr std::size_t kJobsMax = 2;
constexpr std::size_t kBatchesMax = 16;  // bounds the delay of priorities

// Replaces the batch's keys by those of the items that the algorithm has sampled, so that the
// priorities belong to them.
void NoteDrawn(const Algorithm& algorithm, SampleBatch* batch) {
  batch->experience.clear();
  if (algorithm.sampled().empty()) return;
  batch->key.clear();
  batch->policy_version.clear();
  for (const Algorithm::SampledItem& item : algorithm.sampled()) {
    batch->key.push_back(item.key);
    batch->policy_version.push_back(item.policy_version);
  }
}

class LocalUpdater final : public Updater {
 public:
  LocalUpdater(Algorithm* algorithm, Executor* executor, std::uint64_t incarnation)
      : algorithm_(algorithm), incarnation_(incarnation), jobs_(executor) {}

  // Jobs run without help from the node.
  Status Poll(Time) override { return Status::Ok(); }
  bool CanTake() const override { return jobs_.size() < kJobsMax; }
  std::size_t batches_max() const override { return kBatchesMax; }
  bool busy() const override { return jobs_.size() > 0; }
  std::uint64_t generation() const override { return incarnation_; }

  // A failed update leaves its priorities empty and the job continues with the next batch.
  void Take(std::unique_ptr<UpdateJob> job) override {
    const auto work = [job = job.get(), algorithm = algorithm_] {
      std::size_t made = 0;  // updates
      for (std::size_t i = 0; i < job->batches.size(); ++i) {
        SampleBatch& batch = job->batches[i];
        job->priority.emplace_back(batch.key.size());
        if (batch.key.empty()) {
          if (Status taken = algorithm->ApplyTableDelta(batch); !taken.ok()) job->status = taken;
          continue;
        }
        algorithm->ExpectNext(i + 1 < job->batches.size() ? &job->batches[i + 1] : nullptr);
        Result<LossReport> report =
            algorithm->Update(batch, job->ProgressAt(made++), job->priority.back());
        if (report.ok()) {
          job->last = *report;
          NoteDrawn(*algorithm, &batch);
        } else {
          job->status = report.status();
          job->priority.back().clear();
        }
      }
      FinishJob(*algorithm, job);
    };
    jobs_.Submit(work, std::move(job));
  }

  std::unique_ptr<UpdateJob> Collect() override { return jobs_.Collect(); }

 private:
  Algorithm* const algorithm_;
  const std::uint64_t incarnation_;
  UpdateQueue jobs_;
};

}  // namespace

// Scans the weights for non-finite values only where needed: it costs O(P).
void FinishJob(Algorithm& algorithm, UpdateJob* job) {
  job->cost = algorithm.TakeCost();
  job->updates = algorithm.updates();
  const bool good = job->status.ok() && (!job->publish || AllFinite(algorithm.value()));
  if (!good) job->weights = algorithm.CheckFinite();
  if (job->publish && job->weights.ok()) {
    job->value = CopyToSharedBuffer(std::as_bytes(algorithm.WholeValue()));
  }
}

std::unique_ptr<Updater> MakeLocalUpdater(Algorithm* algorithm, Executor* executor,
                                          std::uint64_t incarnation) {
  return std::make_unique<LocalUpdater>(algorithm, executor, incarnation);
}

}  // namespace troop
