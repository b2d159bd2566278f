// Implements the learner role.

#include "learners/learner_node.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "core/base/log.h"
#include "core/storage/crc32c.h"
#include "kernels/elementwise/is_finite.h"
#include "learners/learning_rate_schedule.h"
#include "learners/supervised/index_sampler.h"
#include "learners/supervised/supervised.h"
#include "learners/sync/tensor_parallel_worker.h"
#include "learners/train_state.h"
#include "net/wire/shared_memory.h"
#include "nn/models/model.h"
#include "nn/models/text_model.h"
#include "replay/replica/delta_sampler.h"
#include "replay/service/options_from_config.h"

namespace troop {
namespace {

// Durations from this (30 years) mean never; Time does not hold much more.
constexpr double kForeverSeconds = 1e9;
// Capacity of a rendezvous: the largest number of learners that a run can be scaled to.
constexpr int kLearnersMax = kRanksMax;
// Deadline of the reply to the last heartbeat.
constexpr Duration kLastBeatMax = Seconds(3);

// The secret from the coordinator; nullopt if its length is wrong.
std::optional<GroupSecret> SecretOf(const std::string& bytes) {
  GroupSecret secret;
  if (bytes.size() != secret.size()) return std::nullopt;
  std::ranges::copy(std::as_bytes(std::span(bytes)), secret.begin());
  return secret;
}

}  // namespace

Result<std::unique_ptr<LearnerNode>> LearnerNode::Make(Context context) {
  std::unique_ptr<LearnerNode> node(new LearnerNode(std::move(context)));
  TROOP_RETURN_IF_ERROR(node->Build());
  return node;
}

Status LearnerNode::Build() {
  learners_ = context_.config.fleet.learners;
  TROOP_ASSIGN_OR_RETURN(module_, MakeNetwork(context_.config, context_.env));
  if (supervised()) {
    const int parts = int(context_.config.mesh.tp);
    tensor_ = {.rank = context_.member->options().index % parts, .ranks = parts};
  }
  TROOP_ASSIGN_OR_RETURN(algorithm_, MakeAlgorithm(context_.config, context_.env, tensor_,
                                                   context_.member->options().index));
  if (replicated()) TROOP_RETURN_IF_ERROR(MakeReplica());
  if (sharded()) {
    if (BatchPartition* const partition = algorithm_->batch_partition(); partition != nullptr) {
      partition->SetRank(context_.member->options().index / tensor_.ranks,
                         int(context_.config.fleet.learners) / tensor_.ranks);
    }
  }
  TROOP_RETURN_IF_ERROR(MakeUpdater());
  // The previous process may have written its last checkpoint without reporting it.
  if (const Result<std::string> newest = NewestCheckpoint(context_.run);
      newest.ok() && *newest > context_.resume_checkpoint) {
    context_.resume_checkpoint = *newest;
  }
  if (context_.resume_checkpoint.empty()) return Status::Ok();
  Result<CheckpointState> read = ReadCheckpoint(context_.run, context_.resume_checkpoint);
  if (!read.ok()) {  // damaged since it was written: fall back to an older one
    const Result<std::string> newest = NewestCheckpoint(context_.run);
    if (!newest.ok()) return read.status();
    LogWarning("resuming from {} instead: {}", *newest, read.status().message());
    context_.resume_checkpoint = *newest;
    read = ReadCheckpoint(context_.run, *newest);
  }
  TROOP_ASSIGN_OR_RETURN(const CheckpointState checkpoint, std::move(read));
  TROOP_RETURN_IF_ERROR(algorithm_->SetState(checkpoint.state));
  updates_ = submitted_ = publish_at_ = algorithm_->updates();
  context_.member->report().checkpoint = context_.resume_checkpoint;
  context_.member->report().checkpoint_updates = updates_;
  Note(HistoryEvent::kResumed, updates_);
  LogInfo("resumed from {}: {} updates, {} agent steps", context_.resume_checkpoint, updates_,
          checkpoint.steps);
  return Status::Ok();
}

Status LearnerNode::MakeReplica() {
  TROOP_ASSIGN_OR_RETURN(part_, MakeTextModel(context_.config, tensor_));
  if (tensor_.rank > 0) return Status::Ok();
  TROOP_ASSIGN_OR_RETURN(auto replica, TensorParallelReplica::Make(context_.config, tensor_.ranks,
                                                                   std::move(algorithm_)));
  replica_ = replica.get();
  algorithm_ = std::move(replica);
  return Status::Ok();
}

Status LearnerNode::MakeUpdater() {
  const Config& c = context_.config;
  if (alone() && c.learner.hogwild_threads > 1) {
    TROOP_ASSIGN_OR_RETURN(
        updater_, MakeHogwildUpdater({.config = &context_.config,
                                      .env = &context_.env,
                                      .incarnation = context_.member->options().incarnation,
                                      .executor = context_.executor,
                                      .algorithm = algorithm_.get()}));
    return Status::Ok();
  }
  if (alone()) {
    updater_ = MakeLocalUpdater(algorithm_.get(), context_.executor,
                                context_.member->options().incarnation);
    return Status::Ok();
  }
  const ParamserverUpdaterOptions shards{.config = &context_.config,
                                         .module = module_.get(),
                                         .network = context_.network,
                                         .member = context_.member,
                                         .executor = context_.executor,
                                         .algorithm = algorithm_.get()};
  if (sharded() && !replicated()) {
    TROOP_ASSIGN_OR_RETURN(updater_, MakeParamserverUpdater(shards));
    return Status::Ok();
  }
  if (context_.rendezvous == nullptr) {
    // The token admits equal configs only: others would build different models from the same
    // gradients. Counts that `troop scale` changes during a run are left out.
    Config same = c;
    same.fleet.actors = same.fleet.learners = same.replay.shards = 1;
    const std::string text = ToToml(same);
    rendezvous_ = MakeSocketRendezvous({.token = Crc32c(std::as_bytes(std::span(text))),
                                        .secret = SecretOf(context_.group_secret),
                                        .listen = context_.group_listen,
                                        .learners_max = kLearnersMax,
                                        .timeout = Seconds(c.learner.allreduce_timeout_s)});
    context_.rendezvous = rendezvous_.get();
  }
  if (replicated()) {
    TROOP_ASSIGN_OR_RETURN(updater_,
                           MakeTensorParallelUpdater({.shards = shards,
                                                      .replica = replica_,
                                                      .place = tensor_,
                                                      .part = part_.get(),
                                                      .nccl = Nccl(),
                                                      .rendezvous = context_.rendezvous}));
    return Status::Ok();
  }
  updater_ = MakeAllReduceUpdater({.learners = int(learners_),
                                   .max_updates = std::uint64_t(c.run.max_updates),
                                   .all_have_batches = supervised(),
                                   .parts = tensor_.ranks,
                                   .nccl = Nccl(),
                                   .go_back = [this] { return GoBackToCheckpoint(); },
                                   .rendezvous = context_.rendezvous,
                                   .member = context_.member,
                                   .executor = context_.executor,
                                   .algorithm = algorithm_.get()});
  return Status::Ok();
}

// Options for all-reduce between GPUs; nullopt: through host memory.
std::optional<NcclOptions> LearnerNode::Nccl() const {
  const Config::LearnerKeys& learner = context_.config.learner;
  if (learner.nccl_library.empty()) return std::nullopt;
  NcclOptions options;
  options.library = learner.nccl_library;
  options.timeout = Seconds(learner.allreduce_timeout_s);
  return options;
}

// Tensor parallelism: loads one common state on all ranks. Runs in a job.
Status LearnerNode::GoBackToCheckpoint() {
  const Result<FoundCheckpoint> found = NewestFiniteCheckpoint(context_.run);
  if (found.ok()) return algorithm_->SetState(found->checkpoint.state);
  if (found.status().code() != Code::kNotFound) return found.status();
  TROOP_ASSIGN_OR_RETURN(const auto fresh, MakeAlgorithm(context_.config, context_.env, tensor_));
  return algorithm_->SetState(fresh->State());
}

Status LearnerNode::ConnectReplay(ChannelOptions options) {
  const FleetMember& member = *context_.member;
  if (supervised()) {
    if (!sampler_) sampler_ = MakeIndexSampler();
    return Status::Ok();
  }
  // Room for priorities, totals and dictionaries in addition to requests for samples.
  options.window = int(context_.config.learner.prefetch) + 12;
  if (sampler_) return AddShards(options);
  const std::vector<std::int32_t> shards =
      ReplayShardsFor(context_.config, member.options().index, member.fleet().replay);
  for (const std::int32_t k : shards) {
    if (member.Endpoint(Role::kReplay, k).empty()) return Status::Ok();
  }
  std::vector<std::unique_ptr<Channel>> channels;
  for (const std::int32_t k : shards) {
    TROOP_ASSIGN_OR_RETURN(auto channel,
                           context_.network->Connect(member.Endpoint(Role::kReplay, k), options));
    channels.push_back(std::move(channel));
  }
  const TrajectorySpec trajectory{context_.env.observation, context_.env.action.tensor()};
  shards_ = std::int32_t(channels.size());
  const ReplaySampler::Options drawing = SamplerOptionsFor(context_.config, trajectory);
  sampler_ = context_.config.replay.placement == "gpu"
                 ? MakeDeltaSampler(std::move(channels[0]), trajectory, drawing)
                 : MakeReplaySampler(std::move(channels), trajectory, drawing);
  return Status::Ok();
}

// Connects to new shards, and to leaving ones, which are sampled while they exist.
Status LearnerNode::AddShards(const ChannelOptions& options) {
  const FleetMember& member = *context_.member;
  if (context_.config.replay.scope == "local") return Status::Ok();
  while (shards_ < member.fleet().replay + member.fleet().replay_leaving) {
    const std::string endpoint = member.Endpoint(Role::kReplay, shards_);
    if (endpoint.empty()) return Status::Ok();
    TROOP_ASSIGN_OR_RETURN(auto channel, context_.network->Connect(endpoint, options));
    sampler_->AddShard(std::move(channel));
    ++shards_;
  }
  return Status::Ok();
}

// A learner that was alone becomes one of several; the others take its state.
void LearnerNode::JoinOthers() {
  const std::int32_t learners = context_.member->fleet().learners;
  if (!alone() || learners <= 1 || updater_->busy() || checkpoint_ || rollback_) return;
  learners_ = learners;
  result_ = MakeUpdater();
  LogInfo("continues as one of {} learners, at update {}", learners, algorithm_->updates());
}

Status LearnerNode::Connect() {
  FleetMember& member = *context_.member;
  const Config& c = context_.config;
  const ChannelOptions options{.origin = {.role = Role::kLearner,
                                          .index = member.options().index,
                                          .incarnation = member.options().incarnation},
                               .window = int(c.learner.prefetch) + 4};
  TROOP_RETURN_IF_ERROR(ConnectReplay(options));
  if (!updater_->publishes()) return result_;
  const std::string weights = member.Endpoint(Role::kParamServer, 0);
  if (!publisher_ && !weights.empty()) {
    TROOP_ASSIGN_OR_RETURN(auto channel, context_.network->Connect(weights, options));
    publisher_ = MakeWeightPublisher(std::move(channel));
    if (alone()) PublishNow();
  }
  return result_;
}

StepStatus LearnerNode::Step(Time now) {
  FleetMember& member = *context_.member;
  member.Poll(now, metrics_);
  if (result_.ok()) result_ = member.lost();
  if (result_.ok()) result_ = Connect();
  if (result_.ok() && publisher_) {
    publisher_->Poll(now);
    result_ = publisher_->error();
  }
  if (!result_.ok()) return StepStatus::Done();
  if (sampler_) {
    if (member.phase() >= Phase::kDraining) sampler_->Drain();
    sampler_->Poll(now);
  }
  if (result_.ok()) result_ = updater_->Poll(now);
  CollectUpdates();
  CollectCheckpoint();
  CollectRollback();
  if (result_.ok()) PublishAgain();
  if (result_.ok()) JoinOthers();
  if (!result_.ok()) return StepStatus::Done();
  if (Finishing(now)) return Finish(now);
  const bool connected = sampler_ && (publisher_ || !updater_->publishes());
  if (!connected || rollback_) return Idle();
  SubmitUpdates();
  if (Finishing(now)) return StepStatus::Busy();
  if (!next_checkpoint_) next_checkpoint_ = CheckpointAfter(now);
  if (now >= *next_checkpoint_ && updater_->is_leader()) {
    // With tensor parallelism the next update gathers the state.
    const bool here = tensor_.ranks == 1 || replicated();
    if (here) StartCheckpoint(now, false);
    state_wanted_ = !here;
    next_checkpoint_ = CheckpointAfter(now);
  }
  if (std::exchange(state_came_, false) && updater_->is_leader()) StartCheckpoint(now, false);
  const bool more = updater_->CanTake() && sampler_->ready_batches() > 0;
  if (more) return StepStatus::Busy();
  return Idle(checkpoint_ || !updater_->is_leader() ? kForever : *next_checkpoint_);
}

StepStatus LearnerNode::Idle(Time until) const {
  return StepStatus::Idle(
      std::min({until, context_.member->next_heartbeat(), updater_->next_poll()}));
}

// After the last update: the last checkpoint and the final weights, then the end. With an early
// stop, replay and parameter server may be unknown; they are not needed.
StepStatus LearnerNode::Finish(Time now) {
  FleetMember& member = *context_.member;
  const bool ends = draining_ || member.stop() || member.phase() == Phase::kDone;
  if (ends) updater_->Deregister();
  if (updater_->busy() || checkpoint_ || rollback_) return Idle();
  const bool apart = tensor_.ranks > 1 && WholeStateOf(*algorithm_).tensors.empty();
  if (!final_checkpoint_ && updater_->is_leader() && apart) {
    LogWarning("stopped before the tensor-parallel state was gathered: no checkpoint is written");
    final_checkpoint_ = true;
  }
  if (!final_checkpoint_ && updater_->is_leader()) {
    StartCheckpoint(now, true);
    return StepStatus::Busy();
  }
  if (ends) {
    // First the heartbeat that reports the last checkpoint, then another one with the counts of the
    // last updates, which an exited coordinator does not answer. A node stopped by its own process
    // may have no coordinator.
    if (!draining_ && !last_beat_until_) {
      if (!member.told()) return Idle();
      last_beat_until_ = now + kLastBeatMax;
      member.SendHeartbeatSoon();
      return StepStatus::Busy();
    }
    if (!draining_ && !member.told() && now < *last_beat_until_) return Idle(*last_beat_until_);
    result_ = final_failure_;
    return StepStatus::Done();
  }
  if (publisher_ && updater_->is_leader() && published_ < Version()) PublishNow();
  const bool all_published = !updater_->is_leader() || !updater_->publishes() ||
                             (publisher_ && publisher_->acked_version() >= Version());
  if (all_published && !member.report().finished) {
    member.report().finished = true;
    member.SendHeartbeatSoon();
    return StepStatus::Busy();
  }
  return Idle();
}

// If the replay ratio is enforced, the update count gives a smoother share than agent steps, which
// arrive with heartbeats.
double LearnerNode::Progress(std::uint64_t updates) const {
  const Config& c = context_.config;
  const double expected = UpdatesExpected(c, updater_->learners());
  const double share =
      expected > 0 ? double(updates) / expected
                   : double(context_.member->steps_total_done()) / double(c.run.total_steps);
  return std::min(share, 1.0);
}

std::int64_t LearnerNode::StepsAt(std::uint64_t updates) const {
  const Config& c = context_.config;
  if (!supervised()) return context_.member->steps_total_done();
  const double share = double(updates) / double(std::max<std::int64_t>(1, c.run.max_updates));
  return std::llround(std::min(1.0, share) * c.run.total_steps);
}

void LearnerNode::SubmitUpdates() {
  const std::int64_t max_updates = context_.config.run.max_updates;
  if (EndsWithTheSteps() && context_.member->phase() >= Phase::kDraining) {
    exhausted_ = true;
    return;
  }
  // An update of a text model may take seconds: one per job, so that a stop request takes effect
  // soon.
  const std::size_t batches_max = supervised() ? 1 : updater_->batches_max();
  while (updater_->CanTake()) {
    auto job = std::make_unique<UpdateJob>();
    job->progress = Progress(submitted_);
    job->progress_step = EndsWithTheSteps() ? 0 : Progress(1);
    while (job->batches.size() < batches_max) {
      if (alone() && max_updates > 0 && submitted_ >= std::uint64_t(max_updates)) {
        exhausted_ = true;
        break;
      }
      sampler_->SetBeta(beta_.Beta(Progress(submitted_)));
      Result<std::optional<SampleBatch>> batch = sampler_->Next();
      if (!batch.ok()) {
        if (batch.status().code() != Code::kOutOfRange) result_ = batch.status();
        exhausted_ = true;
        break;
      }
      if (!batch->has_value()) break;
      submitted_ += (*batch)->key.empty() ? 0 : 1;
      job->batches.push_back(std::move(**batch));
    }
    if (job->batches.empty()) return;
    const auto publish_every = std::uint64_t(context_.config.learner.publish_every_updates);
    job->publish =
        updater_->is_leader() && updater_->publishes() && submitted_ - publish_at_ >= publish_every;
    if (job->publish) publish_at_ = submitted_;
    job->want_state = state_wanted_;
    job->taken = job->batches.size();
    batches_waiting_ += job->taken;
    updater_->Take(std::move(job));
  }
}

std::uint64_t LearnerNode::Version() const {
  return WeightsVersion(updater_->generation(), updates_);
}

void LearnerNode::Publish(Buffer value) {
  published_ = Version();
  published_to_ = context_.member->Incarnation(Role::kParamServer, 0);
  publisher_->Publish({published_, std::move(value)});
  Note(HistoryEvent::kPublished, published_);
  if (sampler_) sampler_->ObservePolicyVersion(published_);
}

// A replaced parameter server has no weights. While updates continue, the next publication is near;
// an idle learner publishes again, because actors may wait for weights indefinitely.
void LearnerNode::PublishAgain() {
  const std::uint64_t server = context_.member->Incarnation(Role::kParamServer, 0);
  if (!publisher_ || !updater_->is_leader() || updater_->busy() || checkpoint_ || server == 0 ||
      server == published_to_)
    return;
  PublishNow();
}

// REQUIRES: no update is in progress.
void LearnerNode::PublishNow() {
  if (rollback_) return;                          // CollectRollback publishes
  if (WholeValueOf(*algorithm_).empty()) return;  // not gathered yet; the next update does it
  if (AllFinite(algorithm_->value())) {
    Publish(CopyToSharedBuffer(std::as_bytes(WholeValueOf(*algorithm_))));
  } else {
    StartRollback(algorithm_->CheckFinite());
  }
}

void LearnerNode::CollectUpdates() {
  while (std::unique_ptr<UpdateJob> job = updater_->Collect()) {
    batches_waiting_ -= std::min(batches_waiting_, job->taken);
    if (job->before) AdoptUpdates(*job->before);
    SeeUpdates(job->updates);
    CountUpdates(*job);
    if (job->state_gathered) {
      state_came_ = true;
      state_wanted_ = false;
      state_since_stop_ = stopped_.has_value();
    }
    if (!job->value.empty() && updater_->is_leader()) Publish(std::move(job->value));
    ReportMetrics(*job);
  }
  if (alone() || updater_->busy()) return;
  // Counts updates of other learners, and drops those lost with a group.
  sharded() ? SeeUpdates(algorithm_->updates()) : AdoptUpdates(algorithm_->updates());
  submitted_ = updates_;
  publish_at_ = std::min(publish_at_, updates_);
  if (updater_->is_leader()) return;
  context_.member->report().checkpoint.clear();  // the leader reports newer ones
}

void LearnerNode::CountUpdates(const UpdateJob& job) {
  const std::uint64_t before = skipped_;
  bool back = !job.weights.ok();
  for (std::size_t i = 0; i < job.batches.size(); ++i) {
    if (job.batches[i].key.empty()) continue;  // only experience
    if (!job.priority[i].empty()) {
      sampler_->UpdatePriorities(job.batches[i].key, job.priority[i]);
      rule_.CountGood();
      quarantine_.CountGood();
    } else {
      ++skipped_;
      if (rollback_ || (job.weights.ok() && quarantine_.Catch(job.batches[i], sampler_.get()))) {
        continue;
      }
      back = rule_.CountSkipped() || back;
    }
  }
  if (!job.status.ok() && std::bit_width(before) != std::bit_width(skipped_)) {
    LogWarning("update skipped ({} so far): {}", skipped_, job.status.message());
  }
  // Jobs submitted before a rollback used weights that it discards.
  const bool lost = job.weights.code() == Code::kUnavailable;
  if (back && !rollback_) StartRollback(lost || job.status.ok() ? job.weights : job.status);
}

// Non-finite values: back to the last good version. A permanent device failure (CheckFinite) ends
// the role instead; its replacement resumes from the newest checkpoint.
void LearnerNode::StartRollback(const Status& why) {
  if (why.code() == Code::kUnavailable) {
    result_ = why.WithContext("learner.device");
    return;
  }
  if (sharded()) {
    result_ = Cancelled("diverged (NaN or infinity), and the parameter shards hold the weights: {}",
                        why.message());
    return;
  }
  if (!rule_.GoBack()) {
    result_ = Cancelled(
        "diverged again (NaN or infinity) after {} rollbacks, each within {} good updates, last: "
        "{}; "
        "lower optimizer.learning_rate, set learner.max_grad_norm or env.reward_clip, or check "
        "the values that {} returns",
        RollbackRule::kRollbacksMax, RollbackRule::kGoodMin, why.message(), context_.env.id);
    return;
  }
  updater_->StateChanges();
  rollback_ = std::make_unique<RollbackJob>();
  rollback_->why = why;
  Result<Executor::Job> id = context_.executor->Submit(
      "rollback", [work = rollback_.get(), algorithm = algorithm_.get(), context = &context_] {
        work->to = RollBack(algorithm, context->run, context->config, context->env);
        work->updates = algorithm->updates();
        work->value = Buffer::Copy(std::as_bytes(algorithm->value()));
      });
  TROOP_CHECK(id.ok(), "{}", id.status().ToString());
  rollback_->id = *id;
}

// Waits for all jobs submitted earlier: their results belong to discarded weights.
void LearnerNode::CollectRollback() {
  if (!rollback_ || updater_->busy() || checkpoint_) return;
  if (!context_.executor->TakeDone(rollback_->id)) return;
  const std::unique_ptr<RollbackJob> job = std::move(rollback_);
  if (!job->to.ok()) {
    result_ = job->to.status().WithContext("the rollback failed after " + job->why.message());
    return;
  }
  SeeUpdates(job->updates);
  metrics_.Count("learner/rollbacks");
  LogWarning("rolled back to {}, now update {}: {}", *job->to, updates_, job->why.message());
  // With tensor parallelism this is one part; the next group publishes.
  if (publisher_ && updater_->is_leader() && tensor_.ranks == 1) Publish(std::move(job->value));
}

void LearnerNode::Note(HistoryEvent::What what, std::uint64_t version) const {
  if (context_.history != nullptr) context_.history->Note({.what = what, .version = version});
}

// checkpoint.every_s = 0: only the final checkpoint.
Time LearnerNode::CheckpointAfter(Time now) const {
  const double every_s = context_.config.checkpoint.every_s;
  return every_s > 0 && every_s < kForeverSeconds ? now + Seconds(every_s) : kForever;
}

void LearnerNode::StartCheckpoint(Time now, bool final) {
  if (checkpoint_) return;
  next_checkpoint_ = CheckpointAfter(now);
  checkpoint_ = std::make_unique<CheckpointJob>();
  checkpoint_->final = final;
  Result<Executor::Job> id = context_.executor->Submit(
      "checkpoint", [work = checkpoint_.get(), algorithm = algorithm_.get(), module = module_.get(),
                     run = context_.run, node = this,
                     state = CheckpointState{.steps = StepsAt(updates_),
                                             .config_toml = ToToml(context_.config)}]() mutable {
        const Config& config = node->context_.config;  // constant during the run
        work->updates = algorithm->updates();
        work->weights = algorithm->CheckFinite();
        if (!work->weights.ok()) return;
        state.state = WholeStateOf(*algorithm);
        if (state.state.tensors.empty()) {
          work->path = NotFound("the tensor-parallel state has not been gathered yet");
          return;
        }
        if (const auto updates = UpdatesOfState(state.state); updates.ok()) {
          work->updates = *updates;
        }
        state.updates = work->updates;
        if (node->supervised()) state.steps = node->StepsAt(work->updates);
        work->path = WriteCheckpoint(run, *module, state, config.checkpoint.keep);
        if (!work->final || !node->supervised() || !work->path.ok()) return;
        const Status model = WriteModel(config, run, *module, WholeValueOf(*algorithm));
        if (!model.ok()) work->path = model;
      });
  TROOP_CHECK(id.ok(), "{}", id.status().ToString());
  checkpoint_->id = *id;
}

void LearnerNode::CollectCheckpoint() {
  if (!checkpoint_ || !context_.executor->TakeDone(checkpoint_->id)) return;
  const std::unique_ptr<CheckpointJob> job = std::move(checkpoint_);
  if (!job->weights.ok()) {  // retried at the next interval, or as the final one after the rollback
    if (!rollback_) StartRollback(job->weights);
    return;
  }
  context_.member->SendHeartbeatSoon();
  if (job->path.ok()) {
    Note(HistoryEvent::kCheckpointed, job->updates);
    context_.member->report().checkpoint = *job->path;
    context_.member->report().checkpoint_updates = job->updates;
    context_.member->report().checkpoint_final = job->final;
    if (job->final) final_failure_ = Status::Ok();
    final_checkpoint_ = final_checkpoint_ || job->final;
    return;
  }
  // A full disk must not end the run: the previous checkpoint remains, and the next attempt may
  // succeed. The final one is tried twice; without it the learner ends with an error.
  LogError("checkpoint failed, keeping the previous one: {}", job->path.status().message());
  metrics_.Count("learner/checkpoint_failures");
  if (!job->final) return;
  final_checkpoint_ = !final_failure_.ok();
  final_failure_ = job->path.status().WithContext("the final checkpoint could not be written");
}

}  // namespace troop
