#include <algorithm>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "core/failpoint.h"
#include "core/log.h"
#include "learners/review_data.h"
#include "learners/updater.h"
#include "paramserver/from_config.h"
#include "paramserver/local_replica.h"
#include "paramserver/shard_client.h"
#include "paramserver/shard_finder.h"

namespace troop {
namespace {

constexpr std::size_t kJobsMax = 2;
constexpr std::size_t kBatchesMax = 16;

// A learner without batches leaves after so long: the others may have some.
constexpr Duration kPatience = Seconds(1);

// A gradient that a test spoils (Failpoint::kLearnerPush): as of errors that are so many times as
// large and point the other way. A squared loss then is the square of that times as large.
constexpr float kSpoiltScale = -100;
// Those of a learner that has only begun are not: a guard learns from them what is usual.
constexpr std::int64_t kSoundFirst = 100;

// A batch of a job is pulled for, computed, and pushed; then the next.
class ShardUpdater final : public Updater {
 public:
  ShardUpdater(const ShardUpdaterOptions& options, const ShardMap& map)
      : options_(options),
        finder_(options.network, options.member, map,
                {.role = Role::kLearner,
                 .index = options.member->options().index,
                 .incarnation = options.member->options().incarnation}),
        replica_(ReplicaOptionsFor(*options.config), map.parameters()),
        batches_follow_(BatchesFollow(*options.config)) {}

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
  std::unique_ptr<UpdateJob> Collect() override {
    if (at_ != At::kRest || jobs_.empty() || next_ < jobs_.front()->batches.size()) return nullptr;
    std::unique_ptr<UpdateJob> job = std::move(jobs_.front());
    jobs_.pop_front();
    next_ = 0;
    return job;
  }
  bool busy() const override { return !jobs_.empty() || adopting_; }

  bool Over(bool exhausted) override {
    exhausted_ = exhausted;
    if (at_ != At::kRest || busy()) return false;
    return enough_ || (exhausted && !takes_part_ && !OwesLook());
  }
  void Leave() override { leaving_ = true; }
  bool leads() const override { return options_.member->options().index == 0; }
  bool publishes() const override { return false; }
  std::uint64_t generation() const override { return weights_version_ >> 32; }
  int learners() const override;

 private:
  // kFlushing: steps of batches that are done, before it leaves.
  enum class At { kRest, kPulling, kComputing, kPushing, kFlushing, kLeaving };

  Status Connect();
  // Shards are about to move: it leaves, and goes on when that is over.
  bool Pauses() const {
    const ShardMove& move = options_.member->shard_move();
    return move.number != 0 && move.stage != ShardMoveStage::kGathering;
  }
  // It leads and left, or never came, before others made the weights of the last checkpoint.
  bool OwesLook() const { return exhausted_ && leads() && client_ && !looked_ && !leaving_; }
  bool HasBatch() const { return !jobs_.empty() && next_ < jobs_.front()->batches.size(); }
  // Whether there was something to do.
  bool Advance(Time now);
  bool Begin(Time now);
  bool Rest(Time now);
  bool Pause(Time now);
  bool LeaveShards(Time now);
  bool TakePull(Time now);
  // One version, one batch: learners in step that pull behind each push. Else each goes on from
  // batch to batch by itself, so that a slow one leaves nothing of its share out.
  static bool BatchesFollow(const Config& config);
  void FollowCourse(std::uint64_t version);
  Algorithm::Course NextCourse(const UpdateJob& job) const;
  void AdoptLast(const ShardClient::Pulled& pulled);
  void Compute();
  void SpoilIfDrawn();
  bool TakeGradient(Time now);
  bool Push(Time now);
  void EndBatch();
  void Abandon();

  const ShardUpdaterOptions options_;
  ShardFinder finder_;
  LocalReplica replica_;
  std::unique_ptr<ShardClient> client_;
  std::deque<std::unique_ptr<UpdateJob>> jobs_;
  std::size_t next_ = 0;  // batch of the first job
  At at_ = At::kRest;
  bool takes_part_ = false;     // others may wait for it
  std::uint64_t left_for_ = 0;  // the move for which it has left; 0: none
  std::optional<Time> rests_since_;
  Time began_{};
  std::optional<Time> waits_since_;  // with a gradient, for the weights behind it
  Time pull_since_{};
  std::optional<Time> held_until_;  // by a failpoint: not pushed before
  std::int64_t gradients_ = 0;
  bool computed_ = false;  // one at least
  const bool batches_follow_;
  std::optional<std::uint64_t> batches_;  // of the run, before the next gradient's
  std::uint64_t version_ = 0;             // pulled last
  std::int64_t steps_since_ = 0;          // that
  bool unseen_ = false;                   // it has pushed since
  bool looked_ = false;                   // it left when it had no more batches
  Executor::Job computing_ = 0;
  std::optional<Executor::Job> adopting_;  // the shards' last word
  Result<LossReport> report_ = LossReport{};
  float learning_rate_ = 0;
  std::uint64_t weights_version_ = 0;
  bool exhausted_ = false, enough_ = false, leaving_ = false;
};

Status ShardUpdater::Connect() {
  if (client_) return finder_.Update(client_.get());
  TROOP_ASSIGN_OR_RETURN(auto channels, finder_.Connect());
  if (channels.empty()) return Status::Ok();
  client_ = std::make_unique<ShardClient>(finder_.map(), std::move(channels),
                                          ShardClientOptionsFor(*options_.config));
  return Status::Ok();
}

// Batches behind a version.
int ShardUpdater::learners() const {
  const Config::ParamServerKeys& p = options_.config->paramserver;
  const std::int32_t now = options_.member->fleet().learners;
  std::int64_t pushes = PushesOfUpdate(*options_.config);
  if (now > 0 && InStep(SyncOptionsFor(*options_.config))) pushes = now / options_.config->mesh.tp;
  return int(pushes * p.push_every);
}

bool ShardUpdater::Advance(Time now) {
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

bool ShardUpdater::Begin(Time now) {
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

// No batch. Nobody is to wait for one that has none for a while.
bool ShardUpdater::Rest(Time now) {
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

// Before it leaves, its last steps are pushed where it has no more batches, and where the pull that
// lets it in again would overwrite them.
bool ShardUpdater::LeaveShards(Time now) {
  const bool overwritten = options_.config->paramserver.mode == "local_sgd";
  if ((exhausted_ || overwritten) && replica_.WantsFlush()) {
    at_ = At::kFlushing;
    return true;
  }
  if (client_->pushes_open() > 0) return false;
  // What the last checkpoint is of has its own last push.
  const bool looks = exhausted_ && leads() && unseen_ && !Pauses();
  if (!(looks ? client_->RequestPull(now) : client_->RequestLeave(now)).ok()) return false;
  rests_since_.reset();
  pull_since_ = now;
  at_ = looks ? At::kPulling : At::kLeaving;
  return true;
}

// Leaves once for each move, also where it has never taken part: shards may wait for it to come.
bool ShardUpdater::Pause(Time now) {
  rests_since_.reset();
  FleetMember& member = *options_.member;
  const std::uint64_t move = member.shard_move().number;
  if (left_for_ != move) return LeaveShards(now);
  if (std::exchange(member.report().shard_move, move) != move) member.BeatSoon();
  return false;
}

bool ShardUpdater::TakePull(Time now) {
  const std::optional<ShardClient::Pulled> pulled = client_->TakePull();
  if (!pulled) return false;
  replica_.Pulled(pulled->version, pulled->value);
  const std::optional<Time> since = std::exchange(waits_since_, std::nullopt);
  const ShardClient::Traffic traffic = client_->TakeTraffic();
  options_.algorithm->CountAgreement({.wait_s = since ? ToSeconds(now - *since) : 0,
                                      .travel_s = traffic.push_s,
                                      .bytes = traffic.pushed_bytes,
                                      .weights_s = ToSeconds(now - pull_since_),
                                      .weights_bytes = traffic.pulled_bytes});
  weights_version_ = pulled->weights_version;
  at_ = At::kRest;
  unseen_ = false;
  FollowCourse(pulled->version);
  const std::int64_t max_updates = options_.config->learner.max_updates;
  enough_ = max_updates > 0 && pulled->version > std::uint64_t(max_updates);
  if (enough_) Abandon();
  if (enough_ || !HasBatch()) {
    AdoptLast(*pulled);
  } else {
    Compute();
  }
  return true;
}

bool ShardUpdater::BatchesFollow(const Config& config) {
  return InStep(SyncOptionsFor(config)) &&
         config.paramserver.fetch_every == config.paramserver.push_every;
}

void ShardUpdater::FollowCourse(std::uint64_t version) {
  const bool went_back = version < std::exchange(version_, version);
  if (!batches_ || batches_follow_ || went_back) {
    batches_ = BatchesOfUpdates(*options_.config, version - 1);
  }
  steps_since_ = 0;
}

Algorithm::Course ShardUpdater::NextCourse(const UpdateJob& job) const {
  const std::int64_t max_updates = options_.config->learner.max_updates;
  const double pushes = double(steps_since_) / double(options_.config->paramserver.push_every);
  const double over = (double(version_ - 1) + pushes) / double(max_updates);
  return {.batches = *batches_, .progress = max_updates > 0 ? over : job.ProgressAt(next_)};
}

// Nothing is computed of it; the last checkpoint has it.
void ShardUpdater::AdoptLast(const ShardClient::Pulled& pulled) {
  const auto most = std::uint64_t(options_.config->learner.max_updates);
  const std::uint64_t updates = enough_ ? std::min(pulled.version - 1, most) : pulled.version - 1;
  Result<Executor::Job> id = options_.executor->Submit(
      "adopt",
      [this, updates, value = std::vector<float>(pulled.value.begin(), pulled.value.end())] {
        options_.algorithm->AdoptValue(updates, value);
      });
  TROOP_CHECK(id.ok(), "{}", id.status().ToString());
  adopting_ = *id;
}

void ShardUpdater::Compute() {
  UpdateJob* const job = jobs_.front().get();
  at_ = At::kComputing;
  if (!std::exchange(computed_, true)) job->before = replica_.clock() - 1;
  const auto compute = [this, job, course = NextCourse(*job)] {
    Algorithm& algorithm = *options_.algorithm;
    // Version 1 is what nobody has changed.
    algorithm.AdoptValue(replica_.clock() - 1, replica_.value());
    algorithm.SetCourse(course);
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

void ShardUpdater::SpoilIfDrawn() {
  if (++gradients_ <= kSoundFirst) return;
  const Spoilt spoilt =
      DrawSpoilt(Failpoint::kLearnerPush, {.run_seed = std::uint64_t(options_.config->seed),
                                           .index = std::uint64_t(options_.member->options().index),
                                           .episode = std::uint64_t(gradients_)});
  if (spoilt == Spoilt::kNo) return;
  for (float& g : options_.algorithm->gradient()) g *= kSpoiltScale;
  if (spoilt == Spoilt::kGradientAndLoss) report_->loss *= kSpoiltScale * kSpoiltScale;
}

bool ShardUpdater::TakeGradient(Time now) {
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
    const std::int64_t slowed = SlowedBy(Failpoint::kLearnerPace);
    if (slowed > 1) held_until_ = began_ + slowed * (now - began_);
  } else {
    EndBatch();
  }
  return true;
}

bool ShardUpdater::Push(Time now) {
  if (held_until_ && now < *held_until_) return false;
  held_until_.reset();
  if (!client_->CanPush()) return false;
  const float loss = report_.ok() ? float(report_->loss) : 0;
  const Status pushed = client_->Push(now, replica_.Payload(), learning_rate_, loss);
  replica_.Pushed();
  unseen_ = true;
  // A job that was taken while it flushed has not begun.
  if (std::exchange(at_, At::kRest) == At::kFlushing) return true;
  if (!pushed.ok()) jobs_.front()->status = pushed;
  EndBatch();
  return true;
}

void ShardUpdater::EndBatch() {
  UpdateJob& job = *jobs_.front();
  if (++next_ == job.batches.size()) FinishJob(*options_.algorithm, &job);
}

// What is left of the jobs is not done. What waits for an answer does not wait for it.
void ShardUpdater::Abandon() {
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

Result<std::unique_ptr<Updater>> MakeShardUpdater(const ShardUpdaterOptions& options) {
  TROOP_ASSIGN_OR_RETURN(const ShardMap map, ShardMapFor(*options.config, *options.module));
  return std::unique_ptr<Updater>(std::make_unique<ShardUpdater>(options, map));
}

}  // namespace troop
