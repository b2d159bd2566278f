// Implements the dispatch of the coordinator's messages to its parts.
#include "fleet/coordinator/coordinator.h"

#include <optional>
#include <utility>

#include "core/base/log.h"
#include "core/config/enum_format.h"
#include "core/tensor/trajectory.h"
#include "envs/environment.h"
#include "fleet/config/role_configs.h"
#include "fleet/run/task_info.h"
#include "net/control/status_reply.h"
#include "net/wire/codec.h"
#include "paramserver/service/options_from_config.h"

namespace troop {
namespace {

// A longer gap between two steps is a pause of the coordinator itself (e.g. SIGSTOP).
constexpr Duration kPause = Seconds(1);

// The processes that take part in a reshard. A server counts once it is bound; a learner counts as
// soon as it is registered.
ReshardController::LiveProcesses ProcessesOf(const Membership& members) {
  ReshardController::LiveProcesses present;
  for (const auto& [name, member] : members.records()) {
    const ReshardController::LiveProcess process{member.view.index, member.view.incarnation,
                                                 member.shard_move};
    if (!member.present) continue;
    if (member.view.role == Role::kLearner) present.learners.push_back(process);
    if (member.view.role == Role::kParamServer && !member.endpoint.empty()) {
      present.servers.push_back(process);
    }
  }
  return present;
}

}  // namespace

// The environment is created once, to send its specification to every role.
Result<std::unique_ptr<Coordinator>> Coordinator::Make(Options options) {
  TROOP_ASSIGN_OR_RETURN(EnvSpec env, TaskSpec(options.config));
  std::unique_ptr<Coordinator> node(new Coordinator(std::move(options), std::move(env)));
  const Options& given = node->options_;
  // A run with a checkpoint has issued incarnations.
  TROOP_RETURN_IF_ERROR(node->incarnations_.Load(given.resume_checkpoint.empty()));
  if (given.config.learner.sync == LearnerSync::kParamServer) {
    TROOP_ASSIGN_OR_RETURN(
        node->shards_,
        ParameterResharding::Make(given.config, node->env_, given.run, &node->incarnations_));
  }
  return node;
}

// Pauses of up to kPause are not noticed, so members may be silent for that time in addition.
Coordinator::Coordinator(Options options, EnvSpec env)
    : options_(std::move(options)),
      env_(std::move(env)),
      membership_({.silence_max = Seconds(options_.config.fleet.stall_timeout_s) + kPause}),
      lifecycle_(&options_.config, options_.resume_steps),
      results_(options_.resume_checkpoint, options_.resume_updates),
      incarnations_(options_.run),
      scaling_(&options_.config, options_.may_have),
      admission_(&options_.config, options_.listen) {}

// Order: account for a pause of this process, shard leases, lost members, phase, pending scale
// requests. Done when all members have received the end.
StepStatus Coordinator::Step(Time now) {
  // After a pause of this process, heartbeats are queued in the sockets: its length is not
  // counted as silence of the members.
  if (now - now_ > kPause) {
    membership_.ExtendLeases(now - now_);
    if (shards_) shards_->election().ExtendLeases(now - now_);
  }
  now_ = now;
  if (shards_) shards_->election().Update(now);
  for (MemberRecord* const lost : membership_.RemoveLost(now)) Release(lost);
  AdvancePhase();
  UpdateReshard();
  scaling_.Update(fleet_state());
  if (lifecycle_.over() && all_members_left()) return StepStatus::Done();
  return StepStatus::Idle(now + Milliseconds(100));
}

// Index 0 stands for the role: the first learner is the leader, whose end is that of training.
void Coordinator::AdvancePhase() {
  const MemberRecord* const learner = membership_.Find(Role::kLearner, 0);
  lifecycle_.Advance({.last_evaluation = results_.last_evaluation(),
                      .evaluations_since_best = results_.evaluations_since_best(),
                      .learner_finished = learner != nullptr && learner->view.finished});
}

void Coordinator::Handle(Message message, Reply reply) {
  switch (message.type) {
    case MessageType::kRegister:
      return HandleRegister(message, std::move(reply));
    case MessageType::kJoin:
      return HandleJoin(message, std::move(reply));
    case MessageType::kMemberHeartbeat:
      return HandleBeat(message, std::move(reply));
    case MessageType::kStatus:
      return HandleStatus(std::move(reply));
    case MessageType::kScale:
      return HandleScale(message, std::move(reply));
    default:
      reply.Fail(
          InvalidArgument("the coordinator does not handle messages of type {}; check the endpoint",
                          int(message.type)));
  }
}

// Admits a process as the next incarnation of its role: validates the request, chooses an index for
// an external role, issues an incarnation, retires the previous member, and replies with all that
// the role needs to start.
void Coordinator::HandleRegister(const Message& message, Reply reply) {
  Result<RegisterRequest> request = DecodeBody<RegisterRequest>(message.body);
  if (!request.ok()) return reply.Fail(request.status());
  const Status fits = admission_.CheckRegister(*request, message.key, desired());
  if (!fits.ok()) return reply.Fail(fits);
  const bool joins = request->index < 0;
  if (joins) {
    const Result<std::int32_t> index =
        admission_.ChooseIndex(request->role, desired(), membership_);
    if (!index.ok()) return reply.Fail(index.status());
    request->index = *index;
  }
  // An incarnation is durable before it is issued, so that a restart never repeats one.
  const Result<std::uint64_t> number = incarnations_.Take();
  if (!number.ok()) return reply.Fail(number.status());
  const std::uint64_t incarnation = *number;
  const std::string listen =
      admission_.ListenFor(*request, membership_.Find(request->role, request->index));
  MemberRecord before = membership_.Admit({.role = request->role,
                                           .index = request->index,
                                           .incarnation = incarnation,
                                           .process = request->process,
                                           .host = request->host},
                                          listen, joins, now_);
  // The steps and the counters of a replaced incarnation stay counted.
  lifecycle_.leases().Retire(&before.steps);
  results_.RetireMetrics(before.metrics);
  rewards_.Retire(before.rewards);
  LogInfo("{} joined: incarnation {}, process {} on {}", PeerName(request->role, request->index),
          incarnation, request->process, request->host);
  const RegisterReply body{.incarnation = incarnation,
                           .index = request->index,
                           .config_toml = ToToml(scaling_.ConfigFor(request->role)),
                           .listen = listen,
                           .resume_checkpoint = results_.checkpoint(),
                           .env = ToBody(env_),
                           .group_secret = admission_.SecretFor(request->role),
                           .data_identity = options_.config.data_identity};
  reply.Send({.type = MessageType::kRegisterReply, .body = EncodeBody(body)});
}

// Answers `troop join` before it starts any process: whether the roles may join, and the config.
void Coordinator::HandleJoin(const Message& message, Reply reply) {
  const Result<JoinRequest> request = DecodeBody<JoinRequest>(message.body);
  const Status may =
      request.ok() ? admission_.CheckJoin(*request, message.key, desired()) : request.status();
  if (!may.ok()) return reply.Fail(may);
  LogInfo("{} processes of the role {} join from {}", request->count, RoleName(request->role),
          request->host);
  const JoinReply body{.config_toml = ToToml(scaling_.LiveConfig()),
                       .present = membership_.CountPresent(request->role)};
  reply.Send({.type = MessageType::kJoinReply, .body = EncodeBody(body)});
}

Status Coordinator::CheckOrigin(const Origin& caller, Time now) {
  return membership_.CheckOrigin(caller, incarnations_.next(), now);
}

// Rejects reports that do not belong to the role, and numbers that were never issued.
Status Coordinator::CheckBeat(Role role, const HeartbeatRequest& beat) const {
  if (!beat.checkpoint.empty() && role != Role::kLearner) {
    return InvalidArgument("a checkpoint ({}), which only learners may report",
                           OneLineOf(beat.checkpoint));
  }
  if (!beat.evaluations.empty() && role != Role::kEvaluator) {
    return InvalidArgument("{} evaluations, which only evaluators may report",
                           beat.evaluations.size());
  }
  if (beat.rewards.count > 0 && role != Role::kActor && role != Role::kLearner) {
    return InvalidArgument("reward statistics, which only actors and learners may report");
  }
  // A member follows the fleet's epoch, hence it cannot be ahead of it.
  if (beat.fleet_epoch > slots().counts().epoch) {
    return InvalidArgument("fleet epoch {}, the newest is {}", beat.fleet_epoch,
                           slots().counts().epoch);
  }
  if (beat.shard_term >= incarnations_.next() || beat.shard_move >= incarnations_.next()) {
    return InvalidArgument("shard term {}, move {}; only numbers below {} were issued",
                           beat.shard_term, beat.shard_move, incarnations_.next());
  }
  return Status::Ok();
}

// Handles a heartbeat: checks the incarnation, takes over the report, advances the phase, then
// replies with phase, lease and peers.
void Coordinator::HandleBeat(const Message& message, Reply reply) {
  Result<HeartbeatRequest> beat = DecodeBody<HeartbeatRequest>(message.body);
  if (!beat.ok()) return reply.Fail(beat.status());
  const Role role = message.origin.role;
  const std::string name = PeerName(role, message.origin.index);
  MemberRecord* const member = membership_.FindCurrent(message.origin);
  if (member == nullptr) {
    // Not a log line: every replaced process sends heartbeats until it receives this reply.
    return reply.Fail(Aborted("{} incarnation {} is not a member: it was replaced", name,
                              message.origin.incarnation));
  }
  if (const Status fits = CheckBeat(role, *beat); !fits.ok()) {
    LogWarning("a heartbeat of {} was rejected: {}", name, fits.message());
    return reply.Fail(fits);
  }
  // Step 1: take over the report.
  membership_.RecordHeartbeat(member, &*beat, now_);
  lifecycle_.RecordSteps(role, beat->steps_done, &member->steps);
  if (role == Role::kLearner) results_.RecordUpdates(membership_.NewestVersion());
  // Learners need the newest statistics; there are few of them, so only their beats merge all.
  if (role == Role::kLearner && options_.config.env.normalize_rewards) {
    rewards_.Resume(beat->rewards);
    rewards_.Update(membership_);
  }
  results_.RecordCheckpoint(*beat);
  RecordEvaluations(beat->evaluations);
  AdvancePhase();
  if (!member->present) {  // its process has exited: its last report counts, it gets no lease
    return reply.Fail(Aborted("{} incarnation {} has left", name, message.origin.incarnation));
  }
  // Step 2: renew the lease of a shard, then handle a final heartbeat.
  if (shards_ && role == Role::kParamServer && !beat->endpoint.empty()) {
    shards_->election().RecordHeartbeat(now_, message.origin.index, message.origin.incarnation,
                                        beat->shard_term);
  }
  if (!beat->ended.empty()) {
    RecordFailure(role, member->view.index, OneLineOf(beat->ended),
                  membership_.HistoryOf(role, member->view.index)->failures);
    OnMemberExit(role, member->view.index, member->view.process);
  }
  // A process that ends gets no lease, which it could not use.
  const HeartbeatReply body = MakeBeatReply(member, beat->ended.empty() ? beat->steps_wanted : 0);
  // all_members_left needs what each member has received, not what it should receive.
  member->told = body.phase;
  member->told_stop = body.stop;
  reply.Send({.type = MessageType::kMemberHeartbeatReply, .body = EncodeBody(body)});
}

// Takes over new evaluations, with a log line for each.
void Coordinator::RecordEvaluations(const std::vector<EvaluationReport>& evaluations) {
  for (EvaluationReport e : evaluations) {
    // Parameter shards begin at version 1, before any update.
    if (shards_ && UpdatesOf(e.weights_version) > 0) --e.weights_version;
    if (!results_.AddEvaluation(e)) continue;
    if (IsSupervised(options_.config)) {
      LogInfo("evaluation at {} examples, {} updates: {:.2f} {} of {}{}", e.steps,
              UpdatesOf(e.weights_version), e.return_mean, GetScoreLabels(options_.config).score,
              e.episodes, SpreadText(true, e));
      continue;
    }
    LogInfo("evaluation at {} {}, {} updates: return {}", e.steps, StepsName(options_.config),
            UpdatesOf(e.weights_version), ReturnText(e));
  }
}

// Each part fills its fields; `wanted`: RunLifecycle::FillReply.
HeartbeatReply Coordinator::MakeBeatReply(MemberRecord* member, std::int64_t wanted) {
  HeartbeatReply body;
  lifecycle_.FillReply(wanted, &member->steps, &body);
  // Receivers refuse incarnations above the newest one of a role; index 0 has that of all roles.
  body.issued = membership_.issued();
  body.issued[0] = incarnations_.next() - 1;
  scaling_.FillReply(*member, membership_, &body);
  if (shards_) {
    body.shards = shards_->election().terms();
    body.shard_epochs = shards_->mover().epochs();
    body.shard_move = shards_->mover().move();
    const MemberView& view = member->view;
    // After a reshard to fewer shards, the processes with the highest indices end.
    body.stop = body.stop || (view.role == Role::kParamServer && view.index >= parameter_servers());
  }
  body.peers = membership_.Peers();
  body.rewards = rewards_.total();
  return body;
}

// Starts a change and keeps the reply until it has completed or failed.
void Coordinator::HandleScale(const Message& message, Reply reply) {
  const Result<ScaleRequest> request = DecodeBody<ScaleRequest>(message.body);
  if (!request.ok()) return reply.Fail(request.status());
  if (const std::optional<Role> role = ScaledRole(request->role)) {
    const Status begun = scaling_.Begin(*role, *request, fleet_state());
    if (!begun.ok()) return reply.Fail(begun);
    scaling_.Await(std::move(reply));
    return scaling_.Update(fleet_state());
  }
  const Status begun = BeginReshard(*request);
  if (!begun.ok()) return reply.Fail(begun);
  shards_->Await(std::move(reply));
  UpdateReshard();
}

// Checks the role, the count and the phase, in this order, and starts the reshard.
Status Coordinator::BeginReshard(const ScaleRequest& request) {
  if (request.role != RoleName(Role::kParamServer)) {
    return InvalidArgument(
        "{} can't be scaled in a running fleet; use actors, replay, learners or paramserver",
        request.role);
  }
  if (!shards_) {
    return InvalidArgument(
        "this run has no parameter shards (learner.sync = \"{}\"); paramserver can't be scaled",
        options_.config.learner.sync);
  }
  TROOP_RETURN_IF_ERROR(ParameterResharding::CheckCount(request));
  if (!lifecycle_.running()) {
    return FailedPrecondition("the run is ending; its parameter shards can't be scaled");
  }
  return shards_->Begin(request, now_);
}

// Drives the reshard with the members that are present; gives up when the run ends.
void Coordinator::UpdateReshard() {
  if (!shards_ || !shards_->moving()) return;
  if (!lifecycle_.running()) return shards_->Abort(now_);
  shards_->Update(now_, ProcessesOf(membership_));
}

void Coordinator::HandleStatus(Reply reply) {
  reply.Send({.type = MessageType::kStatusReply,
              .body = EncodeBody(StatusReply{ViewJson(View(), roles())})});
}

void Coordinator::OnMemberExit(Role role, std::int32_t index, std::int64_t process) {
  if (MemberRecord* const member = membership_.Remove(role, index, process)) Release(member);
}

// Returns what an absent member held: a heartbeat that is still in flight gets no lease.
void Coordinator::Release(MemberRecord* member) {
  lifecycle_.leases().Return(&member->steps);
  if (!shards_ || member->view.role != Role::kParamServer) return;
  shards_->election().RecordExit(member->view.index, member->view.incarnation);
  shards_->election().Update(now_);
}

void Coordinator::RecordFailure(Role role, std::int32_t index, const std::string& why,
                                std::int64_t failures) {
  membership_.RecordFailure(role, index, why, failures, now_);
}

// Logs the connections of the members that the run needs.
void Coordinator::PeerChanged(const Origin& peer, PeerState state) {
  const MemberRecord* const member = membership_.RecordConnection(peer, state, now_);
  if (member == nullptr) return;
  if (!(member->has_slot() ? Needs(peer.role, peer.index) : Needs(peer.role))) return;
  const std::string name = PeerName(peer.role, peer.index);
  if (state == PeerState::kDown) LogWarning("{} disconnected", name);
  if (state == PeerState::kHung) LogWarning("{} hangs: only its I/O thread responds", name);
  if (state == PeerState::kUp) LogDebug("{} connected", name);
}

DesiredRoles Coordinator::desired() const {
  return DesiredRoles({.config = &options_.config,
                       .lifecycle = &lifecycle_,
                       .slots = &slots(),
                       .parameter_servers = parameter_servers()});
}

// Includes servers of both maps while a reshard is under way.
std::int32_t Coordinator::parameter_servers() const {
  return shards_ ? shards_->mover().servers() : ParameterServersOf(options_.config);
}

RoleStatusReport Coordinator::status_report() const {
  return {&options_.config, &membership_, desired(), now_};
}

// Roles leave one by one at the end; their last ratios keep the fleet's ratios complete.
RunView Coordinator::View() const {
  RunView view{.phase = lifecycle_.phase(),
               .supervised = IsSupervised(options_.config),
               .offline = IsOffline(options_.config),
               .steps = lifecycle_.steps_done(),
               .steps_total = std::int64_t(options_.config.run.total_steps),
               .steps_at_start = options_.resume_steps,
               .updates_at_start = options_.resume_updates};
  results_.Fill(&view);
  if (shards_) {
    const ReshardController& mover = shards_->mover();
    view.shards = view.shards_wanted = mover.shards();
    if (shards_->moving()) view.shards_wanted = mover.move().shards;
    view.shard_epoch = mover.epochs().size();
  }
  std::vector<MetricSnapshot> snapshots = membership_.Metrics(!lifecycle_.running());
  snapshots.insert(snapshots.begin(), results_.retired_counters());
  view.members = members();
  view.conditions = status_report().Conditions();
  view.metrics = MergeMetrics(snapshots);
  return view;
}

}  // namespace troop
