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
void NoteDrawn(const GpuReplayConsumer* replay, SampleBatch* batch) {
  batch->experience.clear();
  if (replay == nullptr || replay->sampled().empty()) return;
  batch->key.clear();
  batch->policy_version.clear();
  for (const GpuReplayConsumer::SampledItem& item : replay->sampled()) {
    batch->key.push_back(item.key);
    batch->policy_version.push_back(item.policy_version);
  }
}

class LocalUpdater final : public Updater {
 public:
  LocalUpdater(Algorithm* algorithm, Executor* executor, std::uint64_t incarnation)
      : algorithm_(algorithm),
        fused_(algorithm->fused_update()),
        replay_(algorithm->gpu_replay()),
        incarnation_(incarnation),
        jobs_(executor) {}

  // Jobs run without help from the node.
  Status Poll(Time) override { return Status::Ok(); }
  bool CanTake() const override { return jobs_.size() < kJobsMax; }
  std::size_t batches_max() const override { return kBatchesMax; }
  bool busy() const override { return jobs_.size() > 0; }
  std::uint64_t generation() const override { return incarnation_; }

  // A failed update leaves its priorities empty and the job continues with the next batch.
  void Take(std::unique_ptr<UpdateJob> job) override {
    const auto work = [this, job = job.get()] {
      Run(job);
      FinishJob(*algorithm_, job);
    };
    jobs_.Submit(work, std::move(job));
  }

  std::unique_ptr<UpdateJob> Collect() override { return jobs_.Collect(); }

 private:
  // Runs the updates of a job. In a job of the executor.
  void Run(UpdateJob* job) const;
  Status TakeExperience(const SampleBatch& batch) const;

  Algorithm* const algorithm_;
  // Interfaces of algorithm_; nullptr: not supported.
  FusedUpdate* const fused_;
  GpuReplayConsumer* const replay_;
  const std::uint64_t incarnation_;
  UpdateQueue jobs_;
};

Status LocalUpdater::TakeExperience(const SampleBatch& batch) const {
  if (replay_ != nullptr) return replay_->ApplyTableDelta(batch);
  return InvalidArgument("the CPU cannot sample batches itself; set replay.placement = \"host\"");
}

void LocalUpdater::Run(UpdateJob* job) const {
  std::size_t made = 0;  // updates
  for (std::size_t i = 0; i < job->batches.size(); ++i) {
    SampleBatch& batch = job->batches[i];
    job->priority.emplace_back(batch.key.size());
    if (batch.key.empty()) {
      if (Status taken = TakeExperience(batch); !taken.ok()) job->status = taken;
      continue;
    }
    if (fused_ != nullptr) {
      fused_->ExpectNext(i + 1 < job->batches.size() ? &job->batches[i + 1] : nullptr);
    }
    Result<LossReport> report =
        algorithm_->Update(batch, job->ProgressAt(made++), job->priority.back());
    if (report.ok()) {
      job->last = *report;
      NoteDrawn(replay_, &batch);
    } else {
      job->Skip(i, report.status());
    }
  }
}

}  // namespace

// Scans the weights for non-finite values only where needed: it costs O(P).
void FinishJob(Algorithm& algorithm, UpdateJob* job) {
  CostReporting* const costs = algorithm.cost_reporting();
  if (costs != nullptr) job->cost = costs->TakeCost();
  job->updates = algorithm.updates();
  const bool good = job->status.ok() && (!job->publish || AllFinite(algorithm.value()));
  if (!good) job->weights = algorithm.CheckFinite();
  if (job->publish && job->weights.ok()) {
    job->value = CopyToSharedBuffer(std::as_bytes(WholeValueOf(algorithm)));
  }
}

std::unique_ptr<Updater> MakeLocalUpdater(Algorithm* algorithm, Executor* executor,
                                          std::uint64_t incarnation) {
  return std::make_unique<LocalUpdater>(algorithm, executor, incarnation);
}

}  // namespace troop
