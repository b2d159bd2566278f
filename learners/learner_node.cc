// Implements the learner role: its set-up and its turns.

#include "learners/learner_node.h"

#include <algorithm>
#include <utility>

#include "core/base/counted.h"
#include "core/base/log.h"
#include "kernels/elementwise/is_finite.h"
#include "learners/checkpoint.h"
#include "learners/learning_rate_schedule.h"
#include "learners/node/warm_start.h"
#include "net/wire/shared_memory.h"

namespace troop {

// Resume comes last: it replaces the initial weights before any job can read them.
Result<std::unique_ptr<LearnerNode>> LearnerNode::Make(Context context) {
  TROOP_ASSIGN_OR_RETURN(LearnerModel model, LearnerModel::Make(context.config, context.env,
                                                                context.member->options().index));
  TROOP_ASSIGN_OR_RETURN(auto demonstrations, LoadDemonstrations(context.config, context.env));
  if (demonstrations != nullptr) {
    LogInfo("learning from {} with {} of {}", Counted(demonstrations->episodes(), "episode"),
            Counted(demonstrations->transitions(), "step"), context.config.learner.demonstrations);
  }
  std::unique_ptr<LearnerNode> node(
      new LearnerNode(std::move(context), std::move(model), std::move(demonstrations)));
  TROOP_RETURN_IF_ERROR(node->MakeUpdater(int(node->context_.config.learners)));
  TROOP_RETURN_IF_ERROR(node->Resume());
  return node;
}

// The parts refer to context_ and model_, which do not move.
LearnerNode::LearnerNode(Context context, LearnerModel model,
                         std::shared_ptr<const Demonstrations> demonstrations)
    : context_(std::move(context)),
      source_(MakeBatchSource({.config = &context_.config,
                               .env = &context_.env,
                               .network = context_.network,
                               .member = context_.member,
                               .demonstrations = std::move(demonstrations)})),
      model_(std::move(model)),
      algorithm_(model_.algorithm.get()),
      updaters_({.config = &context_.config,
                 .env = &context_.env,
                 .model = &model_,
                 .network = context_.network,
                 .member = context_.member,
                 .executor = context_.executor,
                 .run = context_.run,
                 .all_have_batches = source_->all_have_batches(),
                 .rendezvous = context_.rendezvous,
                 .group_listen = context_.group_listen,
                 .group_secret = context_.group_secret}),
      topology_(TopologyOf(context_.config, int(context_.config.learners), model_.place.ranks)),
      publication_({.network = context_.network,
                    .member = context_.member,
                    .history = context_.history,
                    .every_updates = std::uint64_t(context_.config.learner.publish_every_updates)}),
      schedule_(context_.config.checkpoint.every_s),
      writer_({.config = &context_.config,
               .executor = context_.executor,
               .run = context_.run,
               .module = model_.whole.get(),
               .policy = model_.policy,
               .algorithm = algorithm_,
               .source = source_.get()}),
      gathering_(model_.place.ranks > 1 && !UsesShards(topology_),
                 Seconds(context_.config.shutdown_grace_s / 2)),
      rollback_({.config = &context_.config,
                 .env = &context_.env,
                 .executor = context_.executor,
                 .run = context_.run,
                 .algorithm = algorithm_,
                 .shards_hold_weights = UsesShards(topology_)}) {}

Status LearnerNode::MakeUpdater(int learners) {
  topology_ = TopologyOf(context_.config, learners, model_.place.ranks);
  TROOP_ASSIGN_OR_RETURN(updater_, updaters_.Make(topology_, learners));
  return Status::Ok();
}

Status LearnerNode::Resume() {
  TROOP_ASSIGN_OR_RETURN(const FoundCheckpoint found,
                         FindResumeCheckpoint(context_.run, context_.resume_checkpoint));
  // A new run, or one that ended before its first checkpoint. A tensor-parallel worker of parameter
  // shards holds no weights: it pulls those of the shards, which begin with init_from, too.
  if (found.path.empty()) {
    if (model_.part != nullptr) return Status::Ok();
    TROOP_ASSIGN_OR_RETURN(const RewardStatistics rewards,
                           BeginWarm(context_.config, context_.env, model_.place, algorithm_));
    // The weights are in the scale of these statistics, which the run continues.
    if (context_.config.normalize_rewards) context_.member->report().rewards = rewards;
    return Status::Ok();
  }
  if (!context_.config.learner.init_from.empty()) {
    LogInfo("learner.init_from is ignored: the run continues from its own {}", found.path);
  }
  TROOP_RETURN_IF_ERROR(algorithm_->SetState(found.checkpoint.state));
  updates_ = submitted_ = algorithm_->updates();
  publication_.Begin(updates_);
  source_->Begin(updates_);
  // The predecessor may have ended before it reported these updates; no other may follow.
  source_->ReportSteps(updates_, &context_.member->report());
  // A new coordinator has not received a report of this checkpoint yet.
  context_.member->report().checkpoint = found.path;
  context_.member->report().checkpoint_updates = updates_;
  if (context_.config.normalize_rewards) {
    context_.member->report().rewards = found.checkpoint.rewards;
  }
  Note(HistoryEvent::kResumed, updates_);
  LogInfo("resumed from {}: {} updates, {} agent steps", found.path, updates_,
          found.checkpoint.steps);
  return Status::Ok();
}

void LearnerNode::Note(HistoryEvent::What what, std::uint64_t version) const {
  if (context_.history != nullptr) context_.history->Note({.what = what, .version = version});
}

Status LearnerNode::Connect() {
  const FleetMember& member = *context_.member;
  const ChannelOptions options{.origin = {.role = Role::kLearner,
                                          .index = member.options().index,
                                          .incarnation = member.options().incarnation},
                               .window = int(context_.config.learner.prefetch) + 4};
  TROOP_RETURN_IF_ERROR(source_->Connect(options));
  if (!updater_->publishes()) return result_;
  TROOP_ASSIGN_OR_RETURN(const bool connected, publication_.Connect(options));
  // A single learner has the newest weights already; a group publishes after its state exchange.
  if (connected && IsAlone(topology_)) PublishNow();
  return result_;
}

// Receives messages and collects what jobs have completed.
void LearnerNode::PollParts(Time now) {
  const FleetMember& member = *context_.member;
  // The first error ends the learner; later ones would only be its consequences.
  if (result_.ok()) result_ = member.lost();
  if (result_.ok()) result_ = Connect();
  if (result_.ok()) result_ = publication_.Poll(now);
  if (!result_.ok()) return;
  if (sampler() != nullptr) {
    if (member.phase() >= Phase::kDraining) sampler()->Drain();
    sampler()->Poll(now);
  }
  result_ = updater_->Poll(now);
  if (updater_->learners() > 1) sole_state_ = false;
  CollectUpdates();
  CollectCheckpoint();
  CollectRollback();
  // A replaced parameter server has no weights. While updates continue, the next publication is
  // near; an idle learner publishes again, because actors may wait for weights indefinitely.
  const bool idle = !updater_->busy() && !writer_.busy();
  if (result_.ok() && Leads() && idle && publication_.ServerReplaced()) PublishNow();
  if (result_.ok()) JoinOthers();
}

// One turn: receive, end if it is time, submit batches, begin a checkpoint, then wait.
StepStatus LearnerNode::Step(Time now) {
  context_.member->Poll(now, metrics_);
  PollParts(now);
  if (!result_.ok()) return StepStatus::Done();
  if (Finishing(now)) return Finish(now);
  const bool connected =
      sampler() != nullptr && (publication_.connected() || !updater_->publishes());
  // No update may read or write the weights while a rollback replaces them.
  if (!connected || rollback_.busy()) return Idle();
  SubmitUpdates();
  // The last batch may have been submitted just now.
  if (Finishing(now)) return StepStatus::Busy();
  PollCheckpoint(now);
  // Batches that arrived during this turn are taken at once, without another event.
  const bool more = updater_->CanTake() && sampler()->ready_batches() > 0;
  if (more) return StepStatus::Busy();
  // Only the leader writes checkpoints, so only it wakes up for their schedule.
  return Idle(writer_.busy() || !Leads() ? kForever : schedule_.next());
}

StepStatus LearnerNode::Idle(Time until) const {
  return StepStatus::Idle(
      std::min({until, context_.member->next_heartbeat(), updater_->next_poll()}));
}

// A learner that was alone becomes one of several; the others take its state.
void LearnerNode::JoinOthers() {
  const std::int32_t learners = context_.member->fleet().learners;
  if (!IsAlone(topology_) || learners <= 1 || updater_->busy() || writer_.busy() ||
      rollback_.busy())
    return;
  result_ = MakeUpdater(learners);
  sole_state_ = true;
  LogInfo("continues as one of {} learners, at update {}", learners, algorithm_->updates());
}

// If the replay ratio is enforced, the update count gives a smoother share than agent steps, which
// arrive with heartbeats.
double LearnerNode::Progress(std::uint64_t updates) const {
  const TrainingConfig& c = context_.config;
  const double expected = UpdatesExpected(c, updater_->learners());
  const double share =
      expected > 0 ? double(updates) / expected
                   : double(context_.member->steps_total_done()) / double(c.run.total_steps);
  return std::min(share, 1.0);
}

// Takes batches for one job. An empty job: none is ready, or the source is exhausted.
std::unique_ptr<UpdateJob> LearnerNode::NextJob() {
  const auto max_updates = std::uint64_t(context_.config.run.max_updates);
  auto job = std::make_unique<UpdateJob>();
  // Schedules interpolate between the batches of a job, from the progress at its beginning and the
  // increase per update. Agent steps do not follow updates, so their increase is 0.
  job->progress = Progress(submitted_);
  const bool by_updates = UpdatesExpected(context_.config, updater_->learners()) > 0;
  job->progress_step = by_updates ? Progress(1) : 0;
  const std::size_t batches_max = source_->batches_max(updater_->batches_max());
  while (job->batches.size() < batches_max) {
    // Learners of a group count updates together; only a learner that is alone stops by itself.
    if (IsAlone(topology_) && max_updates > 0 && submitted_ >= max_updates) {
      exhausted_ = true;
      break;
    }
    sampler()->SetBeta(beta_.Beta(Progress(submitted_)));
    Result<std::optional<SampleBatch>> batch = sampler()->Next();
    if (!batch.ok()) {
      // kOutOfRange is the normal end of the source.
      if (batch.status().code() != Code::kOutOfRange) result_ = batch.status();
      exhausted_ = true;
      break;
    }
    if (!batch->has_value()) break;
    submitted_ += (*batch)->key.empty() ? 0 : 1;
    if (context_.config.normalize_rewards) NormalizeRewards(&**batch);
    job->batches.push_back(std::move(**batch));
  }
  return job;
}

const RewardStatistics& LearnerNode::Rewards() const {
  const FleetMember& member = *context_.member;
  return member.rewards().count > 0 ? member.rewards() : context_.member->report().rewards;
}

// Each step's reward has the same factor, so an n-step return has it too. The losses clip
// afterwards (env.reward_clip), reward by reward.
void LearnerNode::NormalizeRewards(SampleBatch* batch) const {
  const double scale = Rewards().Scale();
  for (float& reward : batch->reward.as<float>()) reward = float(double(reward) * scale);
}

void LearnerNode::SubmitUpdates() {
  // A run that is measured in agent steps ends with its actors, whatever is left in the replay.
  // So does the only learner on a data set, if the run ends before run.max_updates.
  const bool alone = source_->all_have_batches() && IsAlone(topology_);
  if ((source_->ends_with_steps() || alone) && context_.member->phase() >= Phase::kDraining) {
    exhausted_ = true;
    return;
  }
  while (updater_->CanTake()) {
    std::unique_ptr<UpdateJob> job = NextJob();
    if (job->batches.empty()) return;
    const bool rollout_ended = source_->TakeRolloutEnd();
    const bool due =
        context_.config.rollout_steps > 0 ? rollout_ended : publication_.TakeDue(submitted_);
    job->publish = due && Leads() && updater_->publishes();
    job->want_state = gathering_.wanted();
    job->taken = job->batches.size();
    batches_waiting_ += job->taken;
    updater_->Take(std::move(job));
  }
}

std::uint64_t LearnerNode::Version() const {
  return WeightsVersion(updater_->generation(), updates_);
}

void LearnerNode::Publish(Buffer value) {
  publication_.Publish(Version(), std::move(value));
  if (sampler() != nullptr) sampler()->ObservePolicyVersion(publication_.published());
}

// REQUIRES: no update is in progress.
void LearnerNode::PublishNow() {
  if (rollback_.busy()) return;                   // CollectRollback publishes
  if (WholeValueOf(*algorithm_).empty()) return;  // not gathered yet; the next update does it
  // Non-finite weights must not reach the actors.
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
    if (const Status bad = rollback_.Review(*job, sampler()); !bad.ok()) StartRollback(bad);
    if (job->state_gathered) gathering_.NoteGathered();
    if (!job->value.empty() && Leads()) Publish(std::move(job->value));
    ReportMetrics(*job);
  }
  if (IsAlone(topology_) || updater_->busy()) return;
  // Counts updates of other learners, and drops those lost with a group.
  UsesShards(topology_) ? SeeUpdates(algorithm_->updates()) : AdoptUpdates(algorithm_->updates());
  submitted_ = updates_;
  publication_.ReturnTo(updates_);
  // A learner that does not publish begins its next rollout with the group's version.
  if (!Leads() && context_.config.rollout_steps > 0 && sampler() != nullptr)
    sampler()->ObservePolicyVersion(Version());
  // The leader reports newer ones.
  if (!Leads()) context_.member->report().checkpoint.clear();
}

// Non-finite values: back to the last good version, or the end of the learner.
void LearnerNode::StartRollback(const Status& why) {
  if (const Status permitted = rollback_.Permit(why); !permitted.ok()) {
    result_ = permitted;
    return;
  }
  updater_->StateChanges();
  rollback_.Start(why);
}

// Waits for all jobs submitted earlier: their results belong to discarded weights.
void LearnerNode::CollectRollback() {
  if (!rollback_.busy() || updater_->busy() || writer_.busy()) return;
  Result<std::optional<RollbackControl::Done>> done = rollback_.Poll();
  if (!done.ok()) result_ = done.status();
  if (!done.ok() || !done->has_value()) return;
  SeeUpdates((*done)->updates);
  metrics_.Count("learner/rollbacks");
  LogWarning("rolled back to {}", (*done)->description);
  // With tensor parallelism this is one part; the next group publishes.
  const bool whole = model_.place.ranks == 1;
  if (publication_.connected() && Leads() && whole) {
    Publish(std::move((*done)->value));
  }
}

// Starts a checkpoint if one is due. The state of a tensor-parallel model comes with an update.
void LearnerNode::PollCheckpoint(Time now) {
  if (schedule_.Poll(now) && Leads()) {
    if (gathering_.needed()) {
      gathering_.Request();
    } else {
      StartCheckpoint(now, false);
    }
    schedule_.Restart(now);
  }
  if (gathering_.TakeGathered() && Leads()) StartCheckpoint(now, false);
}

void LearnerNode::StartCheckpoint(Time now, bool final) {
  if (writer_.busy()) return;
  schedule_.Restart(now);
  writer_.Start(final, context_.member->steps_total_done(), Rewards());
}

void LearnerNode::CollectCheckpoint() {
  const std::optional<CheckpointWriter::Written> written = writer_.Poll();
  if (!written) return;
  // Retried at the next interval, or as the final one after the rollback.
  if (!written->weights.ok()) {
    if (!rollback_.busy()) StartRollback(written->weights);
    return;
  }
  FleetMember& member = *context_.member;
  // The coordinator needs the path for a resume, so the report does not wait for its interval.
  member.SendHeartbeatSoon();
  if (written->final) schedule_.EndFinal(written->path.status());
  if (written->path.ok()) {
    Note(HistoryEvent::kCheckpointed, written->updates);
    member.report().checkpoint = *written->path;
    member.report().checkpoint_updates = written->updates;
    member.report().checkpoint_final = written->final;
    return;
  }
  // A full disk must not end the run: the previous checkpoint remains, and the next attempt may
  // succeed. The final one is tried twice; without it the learner ends with an error.
  LogError("checkpoint failed, keeping the previous one: {}", written->path.status().message());
  metrics_.Count("learner/checkpoint_failures");
}

}  // namespace troop
