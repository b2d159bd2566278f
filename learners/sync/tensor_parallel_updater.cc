// Implements the updaters of a tensor-parallel model that is one parameter-server worker: rank 0,
// and the other ranks.

#include <algorithm>
#include <optional>
#include <utility>

#include "core/base/log.h"
#include "learners/sync/learner_group.h"
#include "learners/sync/tensor_parallel_worker.h"
#include "learners/sync/updater.h"

namespace troop {
namespace {

// Interval of rank 0's orders, also without an update, so that a live rank 0 can be distinguished
// from a dead one. Must be less than a group's timeout.
constexpr Duration kTellEvery = Milliseconds(200);

// The ranks of one model form a group; each model is one worker.
LearnerGroup::Options GroupOptionsOf(const TensorParallelUpdaterOptions& o) {
  return {.learners = o.place.ranks,
          .parts = o.place.ranks,
          .model = o.shards.member->options().index / o.place.ranks,
          .nccl = o.nccl,
          .rendezvous = o.rendezvous,
          .member = o.shards.member,
          .executor = o.shards.executor,
          .algorithm = o.shards.algorithm};
}

Executor::Job InJob(Executor* executor, std::string_view name, std::function<void()> work) {
  Result<Executor::Job> id = executor->Submit(name, std::move(work));
  TROOP_CHECK(id.ok(), "{}", id.status().ToString());
  return *id;
}

// Rank 0: pulls and pushes through a shard updater while its group exists.
class FirstOfReplica final : public Updater {
 public:
  FirstOfReplica(const TensorParallelUpdaterOptions& options, std::unique_ptr<Updater> shards)
      : options_(options),
        replica_(options.replica),
        shards_(std::move(shards)),
        group_(GroupOptionsOf(options)) {
    TROOP_CHECK(replica_ != nullptr && replica_ == options.shards.algorithm,
                "rank 0 needs a TensorParallelReplica");
  }

  Status Poll(Time now) override {
    const bool idle = !telling_ && !shards_->busy();
    if (idle ? !leaving_ || group_.joining() : group_.in_step() != nullptr) group_.Poll(now);
    TROOP_RETURN_IF_ERROR(group_.failure());
    TROOP_RETURN_IF_ERROR(shards_->Poll(now));
    if (telling_ && options_.shards.executor->TakeDone(*telling_)) telling_.reset();
    Collective* const group = group_.in_step();
    if (group == nullptr) return Status::Ok();
    // End of the group: by an error, a request to regroup, or a leaving learner.
    if (replica_->broken() || group_.wanted() || leaving_) {
      // Jobs use the group, so they must finish first.
      if (telling_ || shards_->busy()) return Status::Ok();
      const Status why = replica_->broken() ? replica_->tensor_status()
                                            : Aborted("a learner waits for a new group");
      group->Abort(why);
      group_.Ended(leaving_ ? Status::Ok() : why);
      tell_at_ = Time{};
    } else if (!telling_ && now >= tell_at_) {
      tell_at_ = over_ ? kForever : now + kTellEvery;  // no order follows the last one
      telling_ = InJob(options_.shards.executor, "word",
                       [this, over = over_] { (void)replica_->Tell(over); });
    }
    return Status::Ok();
  }
  Time next_poll() const override {
    const Time tells = group_.in_step() != nullptr && !telling_ ? tell_at_ : kForever;
    return std::min({shards_->next_poll(), group_.next_poll(), tells});
  }

  bool CanTake() const override {
    return group_.in_step() != nullptr && !group_.wanted() && !replica_->broken() &&
           shards_->CanTake();
  }
  std::size_t batches_max() const override { return shards_->batches_max(); }
  void Take(std::unique_ptr<UpdateJob> job) override { shards_->Take(std::move(job)); }
  std::unique_ptr<UpdateJob> Collect() override {
    std::unique_ptr<UpdateJob> job = shards_->Collect();
    if (job != nullptr && !job->status.ok() && replica_->broken()) {
      // The batches are not at fault for the group's end; they are sampled again.
      job->batches.clear();
      job->priority.clear();
      job->skipped.clear();
      job->status = Status::Ok();
    }
    return job;
  }
  bool busy() const override { return telling_ || shards_->busy() || group_.joining(); }

  bool Finished(bool exhausted) override {
    // The final order is sent at once.
    if (shards_->Finished(exhausted) && !std::exchange(over_, true)) tell_at_ = Time{};
    return over_;
  }
  void Deregister() override {
    leaving_ = true;
    shards_->Deregister();
  }
  // Towards the shards rank 0 is an ordinary learner.
  bool is_leader() const override { return shards_->is_leader(); }
  bool publishes() const override { return false; }
  std::uint64_t generation() const override { return shards_->generation(); }
  int learners() const override { return shards_->learners(); }

 private:
  const TensorParallelUpdaterOptions options_;
  TensorParallelReplica* const replica_;
  const std::unique_ptr<Updater> shards_;
  LearnerGroup group_;
  // The order in progress, and the time of the next one.
  std::optional<Executor::Job> telling_;
  Time tell_at_{};
  bool over_ = false, leaving_ = false;
};

// The other ranks: each job follows one order of rank 0.
class OtherOfReplica final : public Updater {
 public:
  explicit OtherOfReplica(const TensorParallelUpdaterOptions& options)
      : options_(options),
        part_(options.shards.algorithm, options.part),
        group_(GroupOptionsOf(options)) {}

  Status Poll(Time now) override {
    // A rank without pushes at the shards confirms a shard move at once.
    FleetMember& member = *options_.shards.member;
    const ShardMove& move = member.shard_move();
    if (move.number != 0 && move.stage != ShardMoveStage::kGathering &&
        std::exchange(member.report().shard_move, move.number) != move.number) {
      member.SendHeartbeatSoon();
    }
    if (!job_ ? !leaving_ || group_.joining() : group_.in_step() != nullptr) group_.Poll(now);
    TROOP_RETURN_IF_ERROR(group_.failure());
    TakeEnd();
    if (job_ || group_.in_step() == nullptr || (!leaving_ && !group_.wanted())) {
      return Status::Ok();
    }
    // No job uses the group here.
    const Status why = Aborted("a learner waits for a new group");
    group_.in_step()->Abort(why);
    group_.Ended(leaving_ ? Status::Ok() : why);
    return Status::Ok();
  }
  Time next_poll() const override { return group_.next_poll(); }

  bool CanTake() const override {
    return !job_ && !finished_ && !over_ && !leaving_ && !group_.wanted() &&
           group_.in_step() != nullptr;
  }
  std::size_t batches_max() const override { return 1; }
  void Take(std::unique_ptr<UpdateJob> job) override {
    job_ = std::move(job);
    id_ = InJob(options_.shards.executor, "follow",
                [this, group = group_.in_step()] { Follow(*group); });
  }
  std::unique_ptr<UpdateJob> Collect() override {
    TakeEnd();
    return std::move(finished_);
  }
  bool busy() const override { return job_ || finished_ || group_.joining(); }

  bool Finished(bool) override { return over_; }
  void Deregister() override { leaving_ = true; }
  // The leader is always a rank 0.
  bool is_leader() const override { return false; }
  bool publishes() const override { return false; }
  std::uint64_t generation() const override { return 0; }

 private:
  // Executes one order. Runs in a job.
  void Follow(Collective& group) {
    UpdateJob& job = *job_;
    std::vector<float>& priority = job.priority.emplace_back(job.batches[0].key.size());
    Result<TensorParallelWorker::Outcome> outcome = part_.Follow(group, job.batches[0], priority);
    if (!outcome.ok()) {
      ended_ = outcome.status();
    } else if (outcome->did == TensorParallelWorker::Did::kOver) {
      told_over_ = true;
    }
    // The batch was not used, so it does not count as skipped.
    if (!outcome.ok() || outcome->did != TensorParallelWorker::Did::kGradient) {
      job.batches.clear();
      job.priority.clear();
    } else if (outcome->report.ok()) {
      job.last = *outcome->report;
    } else {
      job.Skip(0, outcome->report.status());
    }
    FinishJob(*options_.shards.algorithm, &job);
  }
  // On the node's thread, after the job.
  void TakeEnd() {
    if (!job_ || !options_.shards.executor->TakeDone(id_)) return;
    finished_ = std::move(job_);
    over_ = over_ || told_over_;
    if (!ended_.ok()) group_.Ended(leaving_ ? Status::Ok() : ended_);
    ended_ = Status::Ok();
  }

  const TensorParallelUpdaterOptions options_;
  TensorParallelWorker part_;
  LearnerGroup group_;
  std::unique_ptr<UpdateJob> job_, finished_;
  Executor::Job id_ = 0;
  Status ended_;            // error of the group, set by the job
  bool told_over_ = false;  // rank 0 ended the updates; set by the job
  bool over_ = false, leaving_ = false;
};

}  // namespace

// Only rank 0 connects to the shards.
Result<std::unique_ptr<Updater>> MakeTensorParallelUpdater(
    const TensorParallelUpdaterOptions& options) {
  if (options.place.rank > 0) {
    return std::unique_ptr<Updater>(std::make_unique<OtherOfReplica>(options));
  }
  TROOP_ASSIGN_OR_RETURN(auto shards, MakeParamserverUpdater(options.shards));
  return std::unique_ptr<Updater>(std::make_unique<FirstOfReplica>(options, std::move(shards)));
}

}  // namespace troop
