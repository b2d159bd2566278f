// Implements the updater that pulls from and pushes to parameter shards.

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/failpoint.h"
#include "core/base/log.h"
#include "learners/supervised/dataset.h"
#include "learners/sync/updater.h"
#include "paramserver/service/local_replica.h"
#include "paramserver/service/options_from_config.h"
#include "paramserver/service/shard_client.h"
#include "paramserver/service/shard_resolver.h"

namespace troop {
namespace {

constexpr std::size_t kJobsMax = 2;  // a second job is ready when one ends
constexpr std::size_t kBatchesMax = 16;

// A learner without batches leaves after this time, because other learners may have some.
constexpr Duration kPatience = Seconds(1);

// Factor of a gradient that a test corrupts (Failpoint::kLearnerPush), as from errors of that size
// and opposite sign. A squared loss grows by its square.
constexpr float kCorruptionScale = -100;
// The first gradients are not corrupted: the outlier guard is calibrated with them.
constexpr std::int64_t kSoundFirst = 100;

// A state machine: pull, compute, push for each batch of a job in turn.
class ParamserverUpdater final : public Updater {
 public:
  ParamserverUpdater(const ParamserverUpdaterOptions& options, const ShardMap& map)
      : options_(options),
        resolver_(options.network, options.member, map,
                  {.role = Role::kLearner,
                   .index = options.member->options().index,
                   .incarnation = options.member->options().incarnation}),
        replica_(ReplicaOptionsFor(*options.config), map.parameters()),
        batches_follow_(BatchesFollow(*options.config)) {}

  // Runs transitions until none is possible.
  Status Poll(Time now) override {
    TROOP_RETURN_IF_ERROR(Connect());
    if (!client_) return Status::Ok();
    client_->Poll(now);
    if (adopting_ && options_.executor->TakeDone(*adopting_)) adopting_.reset();
    if (leaving_) Abandon();
    while (Advance(now)) {
    }
    return client_->error();
  }
  Time next_poll() const override {
    if (client_ && at_ == At::kRest && HasBatch() && !Pauses()) return Time{};  // taken since
    if (held_until_) return *held_until_;
    return rests_since_ ? *rests_since_ + kPatience : kForever;
  }

  bool CanTake() const override {
    return client_ != nullptr && jobs_.size() < kJobsMax && !enough_ && !leaving_;
  }
  std::size_t batches_max() const override { return kBatchesMax; }
  void Take(std::unique_ptr<UpdateJob> job) override { jobs_.push_back(std::move(job)); }
  // A job is complete when its last batch is at rest.
  std::unique_ptr<UpdateJob> Collect() override {
    if (at_ != At::kRest || jobs_.empty() || next_ < jobs_.front()->batches.size()) return nullptr;
    std::unique_ptr<UpdateJob> job = std::move(jobs_.front());
    jobs_.pop_front();
    next_ = 0;
    return job;
  }
  bool busy() const override { return !jobs_.empty() || adopting_; }

  bool Finished(bool exhausted) override {
    exhausted_ = exhausted;
    if (at_ != At::kRest || busy()) return false;
    return enough_ || (exhausted && !takes_part_ && !OwesLook());
  }
  void Deregister() override { leaving_ = true; }
  bool is_leader() const override { return options_.member->options().index == 0; }
  bool publishes() const override { return false; }
  std::uint64_t generation() const override { return weights_version_ >> 32; }
  int learners() const override;

 private:
  // kFlushing: pushes the steps of finished batches before leaving.
  enum class At { kRest, kPulling, kComputing, kPushing, kFlushing, kLeaving };

  Status Connect();
  // True while shards are about to move: the learner leaves, and continues afterwards.
  bool Pauses() const {
    const ShardMove& move = options_.member->shard_move();
    return move.number != 0 && move.stage != ShardMoveStage::kGathering;
  }
  // True if this leader has left, or never joined, before the others made the weights of the last
  // checkpoint; it must pull them.
  bool OwesLook() const { return exhausted_ && is_leader() && client_ && !looked_ && !leaving_; }
  bool HasBatch() const { return !jobs_.empty() && next_ < jobs_.front()->batches.size(); }
  // Runs one transition. Returns true if the state has changed.
  bool Advance(Time now);
  bool Begin(Time now);
  bool Rest(Time now);
  bool Pause(Time now);
  bool LeaveShards(Time now);
  bool TakePull(Time now);
  // True if each version has one batch: synchronous learners that pull after each push. Otherwise
  // each learner counts batches by itself, so that a slow one skips none of its share.
  static bool BatchesFollow(const Config& config);
  void FollowCourse(std::uint64_t version);
  Algorithm::TrainingProgress NextTrainingProgress(const UpdateJob& job) const;
  void AdoptLast(const ShardClient::Pulled& pulled);
  void Compute();
  void SpoilIfDrawn();
  bool TakeGradient(Time now);
  bool Push(Time now);
  void EndBatch();
  void Abandon();

  const ParamserverUpdaterOptions options_;
  ShardResolver resolver_;
  LocalReplica replica_;
  std::unique_ptr<ShardClient> client_;
  std::deque<std::unique_ptr<UpdateJob>> jobs_;
  std::size_t next_ = 0;  // batch of the first job
  At at_ = At::kRest;
  bool takes_part_ = false;     // the shards may wait for its pushes
  std::uint64_t left_for_ = 0;  // number of the move for which it has left; 0: none
  std::optional<Time> rests_since_;
  Time began_{};
  std::optional<Time> waits_since_;  // has pushed; waits for the next weights
  Time pull_since_{};
  std::optional<Time> held_until_;  // set by a failpoint: no push before
  std::int64_t gradients_ = 0;
  bool computed_ = false;  // at least one gradient
  const bool batches_follow_;
  std::optional<std::uint64_t> batches_;  // of the run, before the next gradient
  std::uint64_t version_ = 0;             // pulled last
  std::int64_t steps_since_ = 0;          // gradients since then
  bool unseen_ = false;                   // has pushed since the last pull
  bool looked_ = false;                   // has pulled after its last batch
  Executor::Job computing_ = 0;
  std::optional<Executor::Job> adopting_;  // stores the final weights
  Result<LossReport> report_ = LossReport{};
  float learning_rate_ = 0;
  std::uint64_t weights_version_ = 0;
  bool exhausted_ = false, enough_ = false, leaving_ = false;
};

// Connects once all shards are known; later calls follow moves and failovers.
Status ParamserverUpdater::Connect() {
  if (client_) return resolver_.Update(client_.get());
  TROOP_ASSIGN_OR_RETURN(auto channels, resolver_.Connect());
  if (channels.empty()) return Status::Ok();
  client_ = std::make_unique<ShardClient>(resolver_.map(), std::move(channels),
                                          ShardClientOptionsFor(*options_.config));
  return Status::Ok();
}

// Number of batches per version.
int ParamserverUpdater::learners() const {
  const Config::ParamServerKeys& p = options_.config->paramserver;
  const std::int32_t now = options_.member->fleet().learners;
  std::int64_t pushes = PushesOfUpdate(*options_.config);
  if (now > 0 && IsSynchronous(SyncOptionsFor(*options_.config)))
    pushes = now / options_.config->mesh.tp;
  return int(pushes * p.push_every);
}

bool ParamserverUpdater::Advance(Time now) {
  switch (at_) {
    case At::kRest:
      return Begin(now);
    case At::kPulling:
      return TakePull(now);
    case At::kComputing:
      return TakeGradient(now);
    case At::kPushing:
    case At::kFlushing:
      return Push(now);
    case At::kLeaving:
      if (!client_->TakePull()) return false;
      takes_part_ = false;
      looked_ = exhausted_;
      left_for_ = Pauses() ? options_.member->shard_move().number : 0;
      at_ = At::kRest;
      return true;
  }
  return false;
}

// Starts the next batch: from the local weights, if the replica needs no pull, or with a pull.
bool ParamserverUpdater::Begin(Time now) {
  if (Pauses()) return Pause(now);
  if (!HasBatch()) return Rest(now);
  rests_since_.reset();
  began_ = now;
  if (takes_part_ && !replica_.WantsPull()) {
    Compute();
    return true;
  }
  if (!client_->RequestPull(now).ok()) return false;
  pull_since_ = now;
  takes_part_ = true;
  looked_ = false;
  at_ = At::kPulling;
  return true;
}

// No batch is available. After a while it leaves, so that the shards do not wait for it.
bool ParamserverUpdater::Rest(Time now) {
  const bool looks = !takes_part_ && OwesLook();
  if (!jobs_.empty() || (!takes_part_ && !looks) || leaving_) {
    rests_since_.reset();
    return false;
  }
  if (looks) {
    if (!client_->RequestPull(now).ok()) return false;
    pull_since_ = now;
    takes_part_ = true;
    at_ = At::kPulling;
    return true;
  }
  if (!rests_since_) rests_since_ = now;
  if (!exhausted_ && !enough_ && now - *rests_since_ < kPatience) return false;
  return LeaveShards(now);
}

// Before leaving, local steps are pushed if there are no more batches, or if the pull on return
// would overwrite them.
bool ParamserverUpdater::LeaveShards(Time now) {
  const bool overwritten = options_.config->paramserver.mode == "local_sgd";
  if ((exhausted_ || overwritten) && replica_.WantsFlush()) {
    at_ = At::kFlushing;
    return true;
  }
  if (client_->pushes_open() > 0) return false;
  // The leader pulls once more: its last push is part of the final checkpoint.
  const bool looks = exhausted_ && is_leader() && unseen_ && !Pauses();
  if (!(looks ? client_->RequestPull(now) : client_->RequestLeave(now)).ok()) return false;
  rests_since_.reset();
  pull_since_ = now;
  at_ = looks ? At::kPulling : At::kLeaving;
  return true;
}

// Leaves once per move, even if it never joined: the shards may wait for its confirmation.
bool ParamserverUpdater::Pause(Time now) {
  rests_since_.reset();
  FleetMember& member = *options_.member;
  const std::uint64_t move = member.shard_move().number;
  if (left_for_ != move) return LeaveShards(now);
  if (std::exchange(member.report().shard_move, move) != move) member.SendHeartbeatSoon();
  return false;
}

// Takes the weights into the replica, accounts for the traffic, and starts to compute or ends.
bool ParamserverUpdater::TakePull(Time now) {
  const std::optional<ShardClient::Pulled> pulled = client_->TakePull();
  if (!pulled) return false;
  replica_.Pulled(pulled->version, pulled->value);
  const std::optional<Time> since = std::exchange(waits_since_, std::nullopt);
  const ShardClient::Traffic traffic = client_->TakeTraffic();
  options_.algorithm->CountAllReduce({.wait_s = since ? ToSeconds(now - *since) : 0,
                                      .allreduce_s = traffic.push_s,
                                      .bytes = traffic.pushed_bytes,
                                      .weights_s = ToSeconds(now - pull_since_),
                                      .weights_bytes = traffic.pulled_bytes});
  weights_version_ = pulled->weights_version;
  at_ = At::kRest;
  unseen_ = false;
  FollowCourse(pulled->version);
  const std::int64_t max_updates = options_.config->run.max_updates;
  // Version v follows v - 1 updates, so version max_updates + 1 ends the run.
  enough_ = max_updates > 0 && pulled->version > std::uint64_t(max_updates);
  if (enough_) Abandon();
  if (enough_ || !HasBatch()) {
    AdoptLast(*pulled);
  } else {
    Compute();
  }
  return true;
}

bool ParamserverUpdater::BatchesFollow(const Config& config) {
  return IsSynchronous(SyncOptionsFor(config)) &&
         config.paramserver.pull_every == config.paramserver.push_every;
}

// Aligns the batch count with the version after a join, in synchronous modes, or after a rollback
// of the shards.
void ParamserverUpdater::FollowCourse(std::uint64_t version) {
  const bool went_back = version < std::exchange(version_, version);
  if (!batches_ || batches_follow_ || went_back) {
    batches_ = BatchesOfUpdates(*options_.config, version - 1);
  }
  steps_since_ = 0;
}

// Between pulls the progress grows with the local steps.
Algorithm::TrainingProgress ParamserverUpdater::NextTrainingProgress(const UpdateJob& job) const {
  const std::int64_t max_updates = options_.config->run.max_updates;
  const double pushes = double(steps_since_) / double(options_.config->paramserver.push_every);
  const double over = (double(version_ - 1) + pushes) / double(max_updates);
  return {.batches = *batches_, .progress = max_updates > 0 ? over : job.ProgressAt(next_)};
}

// Stores the final weights in the algorithm for the last checkpoint, without an update.
void ParamserverUpdater::AdoptLast(const ShardClient::Pulled& pulled) {
  const auto most = std::uint64_t(options_.config->run.max_updates);
  const std::uint64_t updates = enough_ ? std::min(pulled.version - 1, most) : pulled.version - 1;
  Result<Executor::Job> id = options_.executor->Submit(
      "adopt",
      [this, updates, value = std::vector<float>(pulled.value.begin(), pulled.value.end())] {
        options_.algorithm->ReplaceWeights(updates, value);
      });
  TROOP_CHECK(id.ok(), "{}", id.status().ToString());
  adopting_ = *id;
}

// One gradient in a job: adopt the weights, compute, clip, and step the local replica.
void ParamserverUpdater::Compute() {
  UpdateJob* const job = jobs_.front().get();
  at_ = At::kComputing;
  // Only the first job reports a base version; the others continue from it.
  if (!std::exchange(computed_, true)) job->before = replica_.clock() - 1;
  // The job owns algorithm and replica until TakeGradient.
  const auto compute = [this, job, training_progress = NextTrainingProgress(*job)] {
    Algorithm& algorithm = *options_.algorithm;
    // Version 1 is the initial weights.
    algorithm.ReplaceWeights(replica_.clock() - 1, replica_.value());
    algorithm.SetTrainingProgress(training_progress);
    const SampleBatch& batch = job->batches[next_];
    std::vector<float>& priority = job->priority.emplace_back(batch.key.size());
    report_ = algorithm.ComputeGradient(batch, priority);
    if (!report_.ok()) return;
    const auto scale = float(algorithm.ClipScale(report_->gradient_norm));
    if (scale != 1) {
      for (float& g : algorithm.gradient()) g *= scale;
    }
    SpoilIfDrawn();
    learning_rate_ = algorithm.LearningRate(job->ProgressAt(next_));
    replica_.Step(algorithm.gradient(), learning_rate_);
  };
  Result<Executor::Job> id = options_.executor->Submit("gradient", compute);
  TROOP_CHECK(id.ok(), "{}", id.status().ToString());
  computing_ = *id;
}

// Failure injection for tests of the shards' outlier guard.
void ParamserverUpdater::SpoilIfDrawn() {
  if (++gradients_ <= kSoundFirst) return;
  const GradientCorruption spoilt = DrawGradientCorruption(
      Failpoint::kLearnerPush, {.run_seed = std::uint64_t(options_.config->seed),
                                .index = std::uint64_t(options_.member->options().index),
                                .episode = std::uint64_t(gradients_)});
  if (spoilt == GradientCorruption::kNone) return;
  for (float& g : options_.algorithm->gradient()) g *= kCorruptionScale;
  if (spoilt == GradientCorruption::kGradientAndLoss)
    report_->loss *= kCorruptionScale * kCorruptionScale;
}

// After the job: push, if the replica has collected push_every gradients.
bool ParamserverUpdater::TakeGradient(Time now) {
  if (!options_.executor->TakeDone(computing_)) return false;
  UpdateJob& job = *jobs_.front();
  at_ = At::kRest;
  if (report_.ok()) {
    job.last = *report_;
    ++*batches_;
    ++steps_since_;
  } else {
    job.status = report_.status();
    job.priority.back().clear();
  }
  if (report_.ok() && replica_.WantsPush()) {
    at_ = At::kPushing;
    waits_since_ = now;
    // Failpoint: a slow learner, which pushes late.
    const std::int64_t slowed = SlowdownFactor(Failpoint::kLearnerPace);
    if (slowed > 1) held_until_ = began_ + slowed * (now - began_);
  } else {
    EndBatch();
  }
  return true;
}

// Pushes the replica's accumulated steps; a held or blocked push is retried.
bool ParamserverUpdater::Push(Time now) {
  if (held_until_ && now < *held_until_) return false;
  held_until_.reset();
  if (!client_->CanPush()) return false;
  const float loss = report_.ok() ? float(report_->loss) : 0;
  const Status pushed = client_->Push(now, replica_.Payload(), learning_rate_, loss);
  replica_.Pushed();
  unseen_ = true;
  // While flushing, no batch is in progress; a new job has not begun.
  if (std::exchange(at_, At::kRest) == At::kFlushing) return true;
  if (!pushed.ok()) jobs_.front()->status = pushed;
  EndBatch();
  return true;
}

// The weights are checked and copied after the last batch of a job.
void ParamserverUpdater::EndBatch() {
  UpdateJob& job = *jobs_.front();
  if (++next_ == job.batches.size()) FinishJob(*options_.algorithm, &job);
}

// Completes all jobs early. Requests without a reply yet are not waited for.
void ParamserverUpdater::Abandon() {
  if (at_ == At::kComputing || jobs_.empty()) return;
  if (at_ == At::kPushing || at_ == At::kFlushing) replica_.Pushed();
  if (at_ != At::kLeaving) at_ = At::kRest;
  held_until_.reset();
  for (const auto& job : jobs_) {
    job->batches.resize(job->priority.size());
    FinishJob(*options_.algorithm, job.get());
  }
  next_ = jobs_.front()->batches.size();
}

}  // namespace

Result<std::unique_ptr<Updater>> MakeParamserverUpdater(const ParamserverUpdaterOptions& options) {
  TROOP_ASSIGN_OR_RETURN(const ShardMap map, ShardMapFor(*options.config, *options.module));
  return std::unique_ptr<Updater>(std::make_unique<ParamserverUpdater>(options, map));
}

}  // namespace troop
