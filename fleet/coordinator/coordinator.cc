// The coordinator's core: registration, heartbeats, phases and views. Its other parts are in
// elastic_roles.cc, join.cc and role_status_report.cc.
#include "fleet/coordinator/coordinator.h"

#include <algorithm>

#include "core/base/log.h"
#include "core/base/version.h"
#include "core/tensor/trajectory.h"
#include "envs/environment.h"
#include "fleet/run/task_info.h"
#include "net/control/status_reply.h"
#include "net/wire/codec.h"
#include "paramserver/service/options_from_config.h"

namespace troop {
namespace {

// Interval of the silence check, however often messages wake this node.
constexpr Duration kLookEvery = Milliseconds(200);
// A longer gap between two steps is a pause of the coordinator itself (e.g. SIGSTOP).
constexpr Duration kPause = Seconds(1);
// Grace period after the connection of an external member ended. No supervisor reports its exit
// here, and an unstable network may reconnect.
constexpr Duration kLeft = Seconds(3);

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

Coordinator::Coordinator(Options options, EnvSpec env)
    : options_(std::move(options)),
      env_(std::move(env)),
      leases_(std::int64_t(options_.config.run.total_steps), options_.resume_steps),
      reviews_done_(options_.resume_steps),
      results_(options_.resume_checkpoint, options_.resume_updates),
      incarnations_(options_.run),
      slots_(options_.config) {}

// Order: account for a pause of this process, shard leases, silent members, phase, pending scale
// requests. Done when all members know of the end.
StepStatus Coordinator::Step(Time now) {
  // After a pause of this process, heartbeats are queued in the sockets: its length is not
  // counted as silence of the members.
  if (now - now_ > kPause) {
    for (auto& [name, member] : members_) {
      member.last_beat += now - now_;
      if (member.down_since) *member.down_since += now - now_;
    }
    if (shards_) shards_->election().ExtendLeases(now - now_);
  }
  now_ = now;
  if (shards_) shards_->election().Update(now);
  GiveUpSilent();
  AdvancePhase();
  UpdateMove();
  UpdateFleet();
  if ((phase_ == Phase::kDone || stop_) && all_members_left()) return StepStatus::Done();
  return StepStatus::Idle(now + Milliseconds(100));
}

// Removes silent members whose exit no supervisor reports: those on other machines, and those that
// died before their registration was read. Slower than a supervisor, whose reason is more precise.
void Coordinator::GiveUpSilent() {
  if (now_ < next_silence_look_) return;
  next_silence_look_ = now_ + kLookEvery;
  const Duration limit = Seconds(options_.config.fleet.stall_timeout_s) + kPause;
  for (auto& [name, member] : members_) {
    if (!member.present) continue;
    if (member.joined && member.down_since && now_ - *member.down_since > kLeft) {
      LogWarning("{} (process {} on {}) left: its connection ended {:.1f} s ago", name,
                 member.view.process, member.view.host, ToSeconds(now_ - *member.down_since));
      RecordFailure(member.view.role, member.view.index, "its connection ended");
      OnMemberExit(member.view.role, member.view.index, member.view.process);
      continue;
    }
    if (now_ - member.last_beat <= limit) continue;
    LogWarning("{} (process {} on {}) removed: silent for {:.1f} s (fleet.stall_timeout_s)", name,
               member.view.process, member.view.host, ToSeconds(now_ - member.last_beat));
    RecordFailure(member.view.role, member.view.index,
                  fmt::format("silent for {:.1f} s, removed (fleet.stall_timeout_s)",
                              ToSeconds(now_ - member.last_beat)));
    OnMemberExit(member.view.role, member.view.index, member.view.process);
  }
}

// Moves the run forward through running -> draining -> evaluating -> done; never back.
void Coordinator::AdvancePhase() {
  const auto advance = [this](Phase next) {
    if (next <= phase_) return;
    phase_ = next;
    LogInfo("the run is {}: {} {} done", PhaseName(phase_), StepsDone(),
            StepsName(options_.config));
  };
  // Draining starts when the budget is done or the run is solved; evaluating when the learner has
  // written its last checkpoint; done after the final evaluation.
  const Config& c = options_.config;
  const EvaluationReport* last = results_.last_evaluation();
  const bool solved = c.evaluator.stop_at_return != 0 && last != nullptr &&
                      last->return_mean >= c.evaluator.stop_at_return;
  if (StepsDone() >= std::int64_t(c.run.total_steps) || solved) advance(Phase::kDraining);
  const Member* learner = Find(Role::kLearner);
  if (learner != nullptr && learner->view.finished) advance(Phase::kEvaluating);
  if (phase_ == Phase::kEvaluating) {
    const bool judged = last != nullptr && last->final;
    if (judged || !c.evaluator.enabled || FinalEpisodes(c) == 0) advance(Phase::kDone);
  }
}

// Index 0 stands for the role: the first learner is the leader, whose end is that of training.
const Coordinator::Member* Coordinator::Find(Role role) const {
  const auto it = members_.find(PeerName(role, 0));
  return it == members_.end() ? nullptr : &it->second;
}

// Progress of the run, in agent steps, or in reviews for supervised training.
std::int64_t Coordinator::StepsDone() const {
  return IsSupervised(options_.config) ? reviews_done_ : leases_.done();
}

// Marks the member absent; its unused leases return to the pool.
void Coordinator::Forget(Member* member) {
  leases_.Return(&member->steps);
  member->present = false;
  peers_old_ = true;
}

// Endpoints of the present members, rebuilt only after a change.
const std::map<std::string, PeerInfo>& Coordinator::Peers() {
  if (!std::exchange(peers_old_, false)) return peers_;
  peers_.clear();
  for (const auto& [name, peer] : members_) {
    if (!peer.present || peer.endpoint.empty()) continue;
    peers_[name] = {peer.endpoint, peer.view.incarnation};
  }
  return peers_;
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

// Folds a replaced incarnation into the totals: its steps and its counters stay counted.
void Coordinator::Retire(Member* member) {
  Forget(member);
  leases_.Retire(&member->steps);
  results_.RetireMetrics(member->metrics);
  *member = {};
}

// Versions must be equal: mixed fleets are not supported. Index -1: external.
Status Coordinator::CheckRequest(const RegisterRequest& request) const {
  const std::string name = PeerName(request.role, request.index);
  if (request.version != kTroopVersion) {
    return FailedPrecondition("{} is version {}, the coordinator is {}; install the same", name,
                              request.version, kTroopVersion);
  }
  const std::int64_t count = SlotCount(request.role);
  // The index of an external process is chosen later; here only its role must be needed.
  if (request.index == -1) return MayJoin(request.role);
  const bool slot = request.role == Role::kActor ? slots_.Has(request.role, request.index)
                                                 : request.index >= 0 && request.index < count;
  if (slot) return Status::Ok();
  return InvalidArgument("{}: this run has {} roles of this kind; indices begin at 0", name, count);
}

// Admits a process as the next incarnation of its role: validates the request, chooses an index for
// an external role, issues an incarnation, retires the previous member, and replies with all that
// the role needs to start.
void Coordinator::HandleRegister(const Message& message, Reply reply) {
  Result<RegisterRequest> request = DecodeBody<RegisterRequest>(message.body);
  if (!request.ok()) return reply.Fail(request.status());
  Status fits = CheckRequest(*request);
  // The key decides which role a process may take, not what it claims.
  if (fits.ok() && message.key != Role::kNone && message.key != request->role) {
    fits = FailedPrecondition("a key of the role {} can't register as {}; use the key of that role",
                              RoleName(message.key), RoleName(request->role));
  }
  if (!fits.ok()) return reply.Fail(fits);
  const bool joins = request->index < 0;
  if (joins) {
    const Result<std::int32_t> index = FreeIndex(request->role);
    if (!index.ok()) return reply.Fail(index.status());
    request->index = *index;
  }
  // An incarnation is durable before it is issued, so that a restart never repeats one.
  const Result<std::uint64_t> number = incarnations_.Take();
  if (!number.ok()) return reply.Fail(number.status());
  const std::uint64_t incarnation = *number;
  // The bind address is taken before Retire, which clears the old entry.
  Member& member = members_[PeerName(request->role, request->index)];
  std::string listen = ListenFor(*request, member);
  Retire(&member);
  member.listen = listen;
  member.view = {.role = request->role,
                 .index = request->index,
                 .incarnation = incarnation,
                 .process = request->process,
                 .host = request->host};
  member.present = true;
  issued_.resize(std::max(issued_.size(), std::size_t(request->role) + 1));
  issued_[std::size_t(request->role)] = incarnation;
  ++records_[PeerName(request->role, request->index)].registered;
  peers_old_ = true;
  member.joined = joins;
  if (joins && request->role == Role::kActor) {
    joined_.insert(std::ranges::upper_bound(joined_, request->index), request->index);
  }
  member.last_beat = now_;
  LogInfo("{} joined: incarnation {}, process {} on {}", PeerName(request->role, request->index),
          incarnation, request->process, request->host);
  const RegisterReply body{.incarnation = incarnation,
                           .index = request->index,
                           .config_toml = ToToml(ConfigFor(request->role)),
                           .listen = listen,
                           .resume_checkpoint = results_.checkpoint(),
                           .env = ToBody(env_),
                           .group_secret = SecretFor(request->role),
                           .data_identity = options_.config.data_identity};
  reply.Send({.type = MessageType::kRegisterReply, .body = EncodeBody(body)});
}

// Fencing: only the incarnation that the coordinator issued last is the member.
Status Coordinator::CheckOrigin(const Origin& caller, Time now) {
  const std::string name = PeerName(caller.role, caller.index);
  const auto it = members_.find(name);
  if (it != members_.end() && it->second.view.incarnation == caller.incarnation) {
    return Status::Ok();
  }
  // Only a forged number is logged: a replaced process may send its own for a while.
  if (caller.incarnation >= incarnations_.next() && invented_.Next(now)) {
    LogWarning("{} callers rejected; the last is {} with incarnation {}, which was never issued",
               invented_.number, name, caller.incarnation);
  }
  return Aborted("{} incarnation {} is not a member: it was replaced or never registered", name,
                 caller.incarnation);
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
  // A member follows the fleet's epoch, hence it cannot be ahead of it.
  if (beat.fleet_epoch > slots_.counts().epoch) {
    return InvalidArgument("fleet epoch {}, the newest is {}", beat.fleet_epoch,
                           slots_.counts().epoch);
  }
  if (beat.shard_term >= incarnations_.next() || beat.shard_move >= incarnations_.next()) {
    return InvalidArgument("shard term {}, move {}; only numbers below {} were issued",
                           beat.shard_term, beat.shard_move, incarnations_.next());
  }
  return Status::Ok();
}

// Handles a heartbeat: checks the incarnation, takes over metrics, steps, checkpoint and
// evaluations, advances the phase, then replies with phase, lease and peers.
void Coordinator::HandleBeat(const Message& message, Reply reply) {
  Result<HeartbeatRequest> beat = DecodeBody<HeartbeatRequest>(message.body);
  if (!beat.ok()) return reply.Fail(beat.status());
  const std::string name = PeerName(message.origin.role, message.origin.index);
  const auto it = members_.find(name);
  if (it == members_.end() || it->second.view.incarnation != message.origin.incarnation) {
    // Not a log line: every replaced process sends heartbeats until it receives this reply.
    return reply.Fail(Aborted("{} incarnation {} is not a member: it was replaced", name,
                              message.origin.incarnation));
  }
  if (const Status fits = CheckBeat(message.origin.role, *beat); !fits.ok()) {
    LogWarning("a heartbeat of {} was rejected: {}", name, fits.message());
    return reply.Fail(fits);
  }
  Member& member = it->second;
  // Step 1: take over the report.
  member.last_beat = now_;
  peers_old_ = peers_old_ || member.endpoint != beat->endpoint;
  member.endpoint = beat->endpoint;
  member.fleet_epoch = beat->fleet_epoch;
  member.metrics = std::move(beat->metrics);
  const char* const work = WorkOf(message.origin.role).metric;
  const auto done = work == nullptr ? member.metrics.end() : member.metrics.find(work);
  if (done != member.metrics.end()) member.work.Note(now_, done->second.value);
  leases_.Report(&member.steps, beat->steps_done);
  if (message.origin.role == Role::kLearner) NoteUpdates();
  if (message.origin.role == Role::kLearner && IsSupervised(options_.config)) {
    const auto total = std::int64_t(options_.config.run.total_steps);
    // A restarted learner may report less than its predecessor; progress never decreases.
    reviews_done_ = std::clamp(beat->steps_done, reviews_done_, total);
  }
  member.view.finished = beat->finished;
  member.blocked = OneLineOf(beat->blocked);
  member.shard_move = beat->shard_move;
  results_.RecordCheckpoint(*beat);
  for (EvaluationReport e : beat->evaluations) {
    // Parameter shards begin at version 1, before any update.
    if (shards_ && UpdatesOf(e.weights_version) > 0) --e.weights_version;
    if (!results_.AddEvaluation(e)) continue;
    if (IsSupervised(options_.config)) {
      LogInfo("evaluation at {} reviews, {} updates: accuracy {:.2f} % of {}{}", e.steps,
              UpdatesOf(e.weights_version), e.return_mean, e.episodes, SpreadText(true, e));
      continue;
    }
    LogInfo("evaluation at {} agent steps, {} updates: return {}", e.steps,
            UpdatesOf(e.weights_version), ReturnText(e));
  }
  AdvancePhase();
  if (!member.present) {  // its process has exited: its last report counts, it gets no lease
    return reply.Fail(Aborted("{} incarnation {} has left", name, message.origin.incarnation));
  }
  // Step 2: renew the lease of a shard, then handle a final heartbeat.
  if (shards_ && message.origin.role == Role::kParamServer && !beat->endpoint.empty()) {
    shards_->election().RecordHeartbeat(now_, message.origin.index, message.origin.incarnation,
                                        beat->shard_term);
  }
  if (!beat->ended.empty()) {
    RecordFailure(member.view.role, member.view.index, OneLineOf(beat->ended),
                  records_[name].failures);
    OnMemberExit(member.view.role, member.view.index, member.view.process);
  }
  // A process that ends gets no lease, which it could not use.
  const HeartbeatReply body = MakeBeatReply(&member, beat->ended.empty() ? beat->steps_wanted : 0);
  // all_members_left needs what each member has received, not what it should receive.
  member.told = body.phase;
  member.told_stop = body.stop;
  reply.Send({.type = MessageType::kMemberHeartbeatReply, .body = EncodeBody(body)});
}

// Takes the newest version over all learners: synchronous learners share one, those that pull from
// parameter shards may differ.
void Coordinator::NoteUpdates() {
  double newest = -1;
  for (const auto& [name, member] : members_) {
    if (!member.present || member.view.role != Role::kLearner) continue;
    const auto version = member.metrics.find("learner/version");
    if (version != member.metrics.end()) newest = std::max(newest, version->second.value);
  }
  results_.RecordUpdates(newest);
}

// Leases up to `wanted` steps in total to the member, as far as the budget lasts.
HeartbeatReply Coordinator::MakeBeatReply(Member* member, std::int64_t wanted) {
  if (phase_ == Phase::kRunning) leases_.Grant(&member->steps, wanted);
  HeartbeatReply body{.phase = phase_,
                      .stop = stop_,
                      .steps_granted = member->steps.granted,
                      .steps_over = phase_ > Phase::kRunning || leases_.exhausted(),
                      .steps_total_done = StepsDone()};
  // Receivers refuse incarnations above the newest one of a role; index 0 has that of all roles.
  body.issued = issued_;
  body.issued[0] = incarnations_.next() - 1;
  TellFleet(*member, &body);
  if (shards_) {
    body.shards = shards_->election().terms();
    body.shard_epochs = shards_->mover().epochs();
    body.shard_move = shards_->mover().move();
    const MemberView& view = member->view;
    // After a reshard to fewer shards, the processes with the highest indices end.
    body.stop = body.stop || (view.role == Role::kParamServer && view.index >= parameter_servers());
  }
  body.peers = Peers();
  return body;
}

void Coordinator::HandleStatus(Reply reply) {
  reply.Send({.type = MessageType::kStatusReply,
              .body = EncodeBody(StatusReply{ViewJson(View(), roles())})});
}

// The process id guards against a late report about a process that was replaced.
void Coordinator::OnMemberExit(Role role, std::int32_t index, std::int64_t process) {
  const auto it = members_.find(PeerName(role, index));
  if (it == members_.end() || it->second.view.process != process) return;
  if (it->second.present && it->second.joined && role == Role::kActor) std::erase(joined_, index);
  Forget(&it->second);  // a heartbeat that is still in flight gets no lease
  if (shards_ && role == Role::kParamServer) {
    shards_->election().RecordExit(index, it->second.view.incarnation);
    shards_->election().Update(now_);
  }
}

// Connection events only serve the log and down_since; leases decide about membership.
void Coordinator::PeerChanged(const Origin& peer, PeerState state) {
  const auto it = members_.find(PeerName(peer.role, peer.index));
  if (it == members_.end() || !it->second.present ||
      it->second.view.incarnation != peer.incarnation) {
    return;
  }
  if (state == PeerState::kDown) {
    it->second.down_since = now_;
  } else {
    it->second.down_since.reset();
  }
  const bool guest = it->second.joined && peer.role == Role::kActor;  // not in RoleSlots
  if (guest ? !Needs(peer.role) : !Needs(peer.role, peer.index)) return;
  if (state == PeerState::kDown) LogWarning("{} disconnected", it->first);
  if (state == PeerState::kHung) LogWarning("{} hangs: only its I/O thread responds", it->first);
  if (state == PeerState::kUp) LogDebug("{} connected", it->first);
}

// A run that drains needs no experience, so a lost actor is not replaced or reported.
bool Coordinator::Needs(Role role) const {
  if (stop_ || phase_ == Phase::kDone) return false;
  return role != Role::kActor || phase_ == Phase::kRunning;
}

bool Coordinator::Needs(Role role, std::int32_t index) const {
  const bool slot =
      role == Role::kParamServer ? index < parameter_servers() : slots_.Has(role, index);
  return Needs(role) && slot;
}

// A member that has received the final phase needs no further reply.
bool Coordinator::all_members_left() const {
  return std::ranges::all_of(members_, [this](const auto& entry) {
    const Member& m = entry.second;
    return !m.present || m.told == Phase::kDone || (stop_ && m.told_stop);
  });
}

// Members that left contribute their counters; their gauges are dropped.
RunView Coordinator::View() const {
  RunView view{.phase = phase_,
               .supervised = IsSupervised(options_.config),
               .steps = StepsDone(),
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
  std::vector<MetricSnapshot> snapshots{results_.retired_counters()};
  for (const auto& [name, member] : members_) {
    if (member.present) {
      snapshots.push_back(member.metrics);
      continue;
    }
    snapshots.push_back(CountersOf(member.metrics));
    // Roles leave one by one at the end; their last ratios keep the fleet's ratios complete.
    if (phase_ == Phase::kRunning && !stop_) continue;
    for (const auto& [metric, value] : member.metrics) {
      if (value.kind == MetricKind::kGaugeRatio) snapshots.back().emplace(metric, value);
    }
  }
  view.members = members();
  view.conditions = Conditions();
  view.metrics = MergeMetrics(snapshots);
  return view;
}

// Ages are measured here, in the clock of the coordinator.
std::vector<MemberView> Coordinator::members() const {
  std::vector<MemberView> views;
  for (const auto& [name, member] : members_) {
    if (!member.present) continue;
    views.push_back(member.view);
    views.back().heartbeat_age_s = ToSeconds(now_ - member.last_beat);
    if (member.down_since) views.back().down_s = ToSeconds(now_ - *member.down_since);
  }
  return views;
}

}  // namespace troop
