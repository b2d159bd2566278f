// Implements the updater that pulls from and pushes to parameter shards.

#include <optional>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/base/failpoint.h"
#include "core/config/enum_format.h"
#include "learners/sync/batch_queue.h"
#include "learners/sync/pull_push_cycle.h"
#include "learners/sync/replica_step.h"
#include "learners/sync/reshard_pause.h"
#include "learners/sync/shard_progress.h"
#include "learners/sync/updater.h"
#include "paramserver/service/local_replica.h"
#include "paramserver/service/options_from_config.h"
#include "paramserver/service/shard_client.h"
#include "paramserver/service/shard_resolver.h"

namespace troop {
namespace {

// Performs the actions of a PullPushCycle with the shards, the local replica and the batches.
class ParamserverUpdater final : public Updater {
 public:
  ParamserverUpdater(const ParamserverUpdaterOptions& options, const ShardMap& map)
      : options_(options),
        weights_(*options.algorithm->external_optimizer()),
        costs_(options.algorithm->cost_reporting()),
        resolver_(options.network, options.member, map,
                  {.role = Role::kLearner,
                   .index = options.member->options().index,
                   .incarnation = options.member->options().incarnation}),
        replica_(ReplicaOptionsFor(options.config->paramserver), map.parameters()),
        batches_(options.algorithm),
        pause_(options.member),
        progress_(*options.config),
        cycle_({.is_leader = options.member->options().index == 0,
                .pull_overwrites = options.config->paramserver.mode == SyncMode::kLocalSgd}),
        step_({.config = options.config,
               .learner = options.member->options().index,
               .executor = options.executor,
               .algorithm = options.algorithm,
               .replica = &replica_}) {}

  // Runs transitions until none is possible.
  Status Poll(Time now) override {
    TROOP_RETURN_IF_ERROR(Connect());
    if (!client_) return Status::Ok();
    client_->Poll(now);
    if (adopting_ && options_.executor->TakeDone(*adopting_)) adopting_.reset();
    if (cycle_.deregistered()) Abandon();
    while (Advance(now)) {
    }
    return client_->error();
  }
  Time next_poll() const override {
    if (client_ && at_rest() && batches_.HasBatch() && !pause_.requested()) {
      return Time{};  // taken since
    }
    if (held_until_) return *held_until_;
    return cycle_.patience_end();
  }

  bool CanTake() const override {
    return client_ != nullptr && batches_.HasRoom() && !progress_.complete() &&
           !cycle_.deregistered();
  }
  std::size_t batches_max() const override { return BatchQueue::kBatchesMax; }
  void Take(std::unique_ptr<UpdateJob> job) override { batches_.Add(std::move(job)); }
  // A job is complete when its last batch is at rest.
  std::unique_ptr<UpdateJob> Collect() override { return at_rest() ? batches_.Collect() : nullptr; }
  bool busy() const override { return !batches_.empty() || adopting_; }

  bool Finished(bool exhausted) override {
    cycle_.SetExhausted(exhausted);
    if (!at_rest() || busy()) return false;
    if (!client_) return exhausted;
    return progress_.complete() || cycle_.Finished();
  }
  void Deregister() override { cycle_.Deregister(); }
  bool is_leader() const override { return options_.member->options().index == 0; }
  bool publishes() const override { return false; }
  // The upper half of a weights version; the lower half counts updates (WeightsVersion).
  std::uint64_t generation() const override { return weights_version_ >> 32; }
  int learners() const override;

 private:
  using State = PullPushCycle::State;
  using Action = PullPushCycle::Action;

  Status Connect();
  bool at_rest() const { return cycle_.state() == State::kRest; }
  // Runs one transition. Returns true if the state has changed.
  bool Advance(Time now);
  bool Begin(Time now);
  PullPushCycle::Situation SituationNow() const;
  bool RequestPull(Time now);
  bool RequestLeave(Time now);
  bool TakePull(Time now);
  bool TakeLeave();
  void CountTraffic(Time now);
  void AdoptFinal(const ShardClient::Pulled& pulled);
  void Compute();
  bool TakeGradient(Time now);
  bool Push(Time now);
  void Abandon();

  const ParamserverUpdaterOptions options_;
  // Interfaces of options_.algorithm.
  ExternalOptimizer& weights_;
  CostReporting* const costs_;  // nullptr: not supported
  ShardResolver resolver_;
  LocalReplica replica_;
  std::unique_ptr<ShardClient> client_;  // null: the shards' endpoints are not known yet
  BatchQueue batches_;
  ReshardPause pause_;
  ShardProgress progress_;
  PullPushCycle cycle_;
  ReplicaStep step_;
  Time began_{};                           // of the batch
  Time pull_since_{};                      // time of the last request
  std::optional<Time> waits_since_;        // has pushed; waits for the next weights
  std::optional<Time> held_until_;         // set by a failpoint: no push before
  std::optional<Executor::Job> adopting_;  // stores the final weights
  std::uint64_t weights_version_ = 0;
};

// Connects once all shards are known; later calls follow moves and failovers.
Status ParamserverUpdater::Connect() {
  if (client_) return resolver_.Update(client_.get());
  TROOP_ASSIGN_OR_RETURN(auto channels, resolver_.Connect());
  if (channels.empty()) return Status::Ok();
  client_ = std::make_unique<ShardClient>(resolver_.map(), std::move(channels),
                                          ShardClientOptionsFor(options_.config->paramserver));
  return Status::Ok();
}

// Number of batches per version.
int ParamserverUpdater::learners() const {
  const ParamServerConfig& p = options_.config->paramserver;
  const std::int32_t now = options_.member->fleet().learners;
  const std::int64_t workers = WorkersOf(options_.config->learners, options_.config->mesh.tp);
  std::int64_t pushes = PushesOfUpdate(p, workers);
  // A synchronous update takes one push from each group of mesh.tp learners.
  if (now > 0 && HasSynchronousShards(p)) pushes = now / options_.config->mesh.tp;
  // Each push sums the gradients of push_every batches.
  return int(pushes * p.push_every);
}

// Every state but kRest waits for one event: a reply, a finished job, or room for a push.
bool ParamserverUpdater::Advance(Time now) {
  switch (cycle_.state()) {
    case State::kRest:
      return Begin(now);
    case State::kPulling:
      return TakePull(now);
    case State::kComputing:
      return TakeGradient(now);
    case State::kPushing:
    case State::kFlushing:
      return Push(now);
    case State::kLeaving:
      return TakeLeave();
  }
  return false;
}

// Performs the action that the cycle has chosen. A request that fails is repeated by a later Poll.
bool ParamserverUpdater::Begin(Time now) {
  // The client has one request at a time: the reply to an abandoned pull is discarded first.
  if (client_->pulling() && !client_->TakePull()) return false;
  const PullPushCycle::Situation situation = SituationNow();
  const Action action = cycle_.Next(now, situation);
  // The pull counts as a part of the batch, which the failpoint in TakeGradient stretches.
  if (situation.has_batch && !situation.pause_requested) began_ = now;
  switch (action) {
    case Action::kWait:
      return false;
    case Action::kPull:
      return RequestPull(now);
    case Action::kCompute:
      Compute();
      return true;
    case Action::kFlush:
      cycle_.FlushStarted();
      return true;
    case Action::kLeave:
      return RequestLeave(now);
    case Action::kConfirmPause:
      pause_.Confirm();
      return false;
  }
  return false;
}

// All that the cycle decides by; it has no access to the parts themselves.
PullPushCycle::Situation ParamserverUpdater::SituationNow() const {
  return {.has_batch = batches_.HasBatch(),
          .has_jobs = !batches_.empty(),
          .wants_pull = replica_.WantsPull(),
          .wants_flush = replica_.WantsFlush(),
          .has_open_pushes = client_->pushes_open() > 0,
          .pause_requested = pause_.requested(),
          .has_paused = pause_.left(),
          .complete = progress_.complete()};
}

bool ParamserverUpdater::RequestPull(Time now) {
  if (!client_->RequestPull(now).ok()) return false;
  pull_since_ = now;
  cycle_.PullRequested();
  return true;
}

bool ParamserverUpdater::RequestLeave(Time now) {
  if (!client_->RequestLeave(now).ok()) return false;
  pull_since_ = now;
  cycle_.LeaveRequested();
  return true;
}

bool ParamserverUpdater::TakeLeave() {
  if (!client_->TakePull()) return false;
  cycle_.Left();
  pause_.Left();
  return true;
}

// Takes the weights into the replica, and starts to compute or ends.
bool ParamserverUpdater::TakePull(Time now) {
  const std::optional<ShardClient::Pulled> pulled = client_->TakePull();
  if (!pulled) return false;
  replica_.Pulled(pulled->version, pulled->value);
  CountTraffic(now);
  weights_version_ = pulled->weights_version;
  cycle_.PullTaken();
  progress_.Pulled(pulled->version);
  // Others may have completed the run meanwhile: batches that are left are not computed.
  if (progress_.complete()) Abandon();
  if (progress_.complete() || !batches_.HasBatch()) {
    AdoptFinal(*pulled);
  } else {
    Compute();
  }
  return true;
}

// Adds the traffic of a cycle to the algorithm's costs.
void ParamserverUpdater::CountTraffic(Time now) {
  const std::optional<Time> since = std::exchange(waits_since_, std::nullopt);
  const ShardClient::Traffic traffic = client_->TakeTraffic();
  if (costs_ == nullptr) return;
  costs_->CountAllReduce({.wait_s = since ? ToSeconds(now - *since) : 0,
                          .allreduce_s = traffic.push_s,
                          .bytes = traffic.pushed_bytes,
                          .weights_s = ToSeconds(now - pull_since_),
                          .weights_bytes = traffic.pulled_bytes});
}

// Stores the final weights in the algorithm for the last checkpoint, without an update.
void ParamserverUpdater::AdoptFinal(const ShardClient::Pulled& pulled) {
  // Copies the value: the span belongs to the client, and the job runs on another thread.
  Result<Executor::Job> id = options_.executor->Submit(
      "adopt", [this, updates = progress_.updates(),
                value = std::vector<float>(pulled.value.begin(), pulled.value.end())] {
        weights_.ReplaceWeights(updates, value);
      });
  TROOP_CHECK(id.ok(), "{}", id.status().ToString());
  adopting_ = *id;
}

// The job runs on the executor; TakeGradient collects its result.
void ParamserverUpdater::Compute() {
  cycle_.ComputeStarted();
  step_.Start(&batches_.job(), batches_.batch(), progress_.Next(batches_.progress()));
}

// After the job: push, if the replica has collected push_every gradients.
bool ParamserverUpdater::TakeGradient(Time now) {
  if (!step_.TakeDone()) return false;
  UpdateJob& job = batches_.job();
  const Result<LossReport>& report = step_.report();
  if (report.ok()) {
    job.last = *report;
    progress_.CountGradient();
  } else {
    // An error ends the batch without an update, and its items keep their priorities.
    job.Skip(job.priority.size() - 1, report.status());
  }
  // False also between the pushes of push_every > 1: the replica keeps the sum.
  const bool pushes = report.ok() && replica_.WantsPush();
  cycle_.Computed(pushes);
  if (pushes) {
    waits_since_ = now;
    // Failpoint: a slow learner, which pushes late.
    const std::int64_t slowed = SlowdownFactor(Failpoint::kLearnerPace);
    if (slowed > 1) held_until_ = began_ + slowed * (now - began_);
  } else {
    batches_.FinishBatch();
  }
  return true;
}

// Pushes the replica's accumulated steps; a held or blocked push is retried.
bool ParamserverUpdater::Push(Time now) {
  if (held_until_ && now < *held_until_) return false;
  held_until_.reset();
  if (!client_->CanPush()) return false;
  // One loss stands for the whole push: that of the newest batch, or 0 after an error.
  const float loss = step_.report().ok() ? float(step_.report()->loss) : 0;
  const Status pushed = client_->Push(now, replica_.Payload(), step_.learning_rate(), loss);
  // The replica begins its next step in any case: a failed push is reported, not repeated.
  replica_.Pushed();
  // A flush belongs to no batch, since those that it includes are done.
  if (!cycle_.Pushed()) return true;
  if (!pushed.ok()) batches_.job().status = pushed;
  batches_.FinishBatch();
  return true;
}

// Completes all jobs early. Requests without a reply yet are not waited for.
void ParamserverUpdater::Abandon() {
  if (cycle_.state() == State::kComputing || batches_.empty()) return;
  if (cycle_.Abandon()) replica_.Pushed();
  held_until_.reset();
  batches_.Abandon();
}

}  // namespace

Result<std::unique_ptr<Updater>> MakeParamserverUpdater(const ParamserverUpdaterOptions& options) {
  if (options.algorithm->external_optimizer() == nullptr) {
    return InvalidArgument("learner.algorithm = \"{}\" does not support parameter shards",
                           AlgorithmName(options.config->learner));
  }
  TROOP_ASSIGN_OR_RETURN(const ShardMap map,
                         ShardMapFor(options.config->paramserver, *options.module));
  return std::unique_ptr<Updater>(std::make_unique<ParamserverUpdater>(options, map));
}

}  // namespace troop
