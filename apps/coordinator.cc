#include "apps/coordinator.h"

#include <algorithm>
#include <charconv>

#include "apps/problem.h"
#include "core/log.h"
#include "core/trajectory.h"
#include "core/version.h"
#include "envs/environment.h"
#include "net/codec.h"
#include "paramserver/from_config.h"

namespace troop {
namespace {

// Holds the next incarnation as a decimal number: never used twice, also after a crash.
constexpr char kIncarnationFile[] = "incarnation";
constexpr std::size_t kIncarnationBytesMax = 64;
// Streams and versions keep incarnations in 32 bits, evaluations in 23.
constexpr std::uint64_t kIncarnationMax = (1u << 23) - 1;
// Taken at a time: a fleet that starts waits for the disk once for so many.
constexpr std::uint64_t kIncarnationsAhead = 32;
// Who has been silent is looked up so often, however often messages wake this node.
constexpr Duration kLookEvery = Milliseconds(200);
// A pause of the coordinator's own, such as a stopped launcher.
constexpr Duration kPause = Seconds(1);
// An actor from elsewhere whose connection ended so long ago has left: its machine may be gone, and
// nobody there tells. It may have been a network that flaps, so not at once.
constexpr Duration kLeft = Seconds(3);

}  // namespace

MetricSnapshot CountersOf(const MetricSnapshot& metrics) {
  MetricSnapshot counters;
  for (const auto& [name, value] : metrics) {
    const bool grows = value.kind == MetricKind::kCounter || value.kind == MetricKind::kHistogram;
    if (grows) counters.emplace(name, value);
  }
  return counters;
}

Result<std::unique_ptr<Coordinator>> Coordinator::Make(Options options) {
  TROOP_ASSIGN_OR_RETURN(EnvSpec env, ProblemOf(options.config));
  std::unique_ptr<Coordinator> node(new Coordinator(std::move(options), std::move(env)));
  TROOP_RETURN_IF_ERROR(node->LoadCounters());
  if (node->options_.config.learner.sync == "paramserver") {
    TROOP_RETURN_IF_ERROR(node->BeginShards());
  }
  return node;
}

// Of an incarnation, or a term of a shard: no two have the same. What was taken ahead of need and
// not used when this process ends is nobody's.
Result<std::uint64_t> Coordinator::TakeNumber() {
  if (next_incarnation_ >= incarnations_kept_) {
    const std::uint64_t kept = next_incarnation_ + kIncarnationsAhead;
    TROOP_RETURN_IF_ERROR(options_.run->WriteAtomic(kIncarnationFile, std::to_string(kept)));
    incarnations_kept_ = kept;
  }
  return next_incarnation_++;
}

Status Coordinator::LoadCounters() {
  retired_steps_ = reviews_done_ = options_.resume_steps;
  checkpoint_ = options_.resume_checkpoint;
  checkpoint_updates_ = options_.resume_updates;
  updates_ = options_.resume_updates;
  retired_counters_["learner/updates"].value = double(options_.resume_updates);
  // A run that has a checkpoint has had roles with numbers.
  const bool fresh = options_.resume_checkpoint.empty();
  if (fresh && !options_.run->Exists(kIncarnationFile)) return Status::Ok();
  const Result<Buffer> text = options_.run->Read(kIncarnationFile, kIncarnationBytesMax);
  const Code read = text.status().code();
  const bool damaged = read == Code::kResourceExhausted || read == Code::kNotFound;
  if (!text.ok() && !damaged) return text.status();
  std::string_view digits = text.ok() ? text->text() : std::string_view();
  while (!digits.empty() && digits.back() == '\n') digits.remove_suffix(1);
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, next_incarnation_);
  if (error != std::errc() || stop != end || next_incarnation_ == 0 ||
      next_incarnation_ > kIncarnationMax) {
    return DataLoss(
        "{} of the run's folder is damaged; it holds the next incarnation number: write "
        "one there that is larger than any in the logs",
        kIncarnationFile);
  }
  return Status::Ok();
}

Turn Coordinator::Step(Time now) {
  // Beats that came while nobody listened here wait in the sockets: that was no silence of theirs.
  if (now - now_ > kPause) {
    for (auto& [name, member] : members_) {
      member.last_beat += now - now_;
      if (member.down_since) *member.down_since += now - now_;
    }
    if (shards_) shards_->Forgive(now - now_);
  }
  now_ = now;
  if (shards_) shards_->Update(now);
  GiveUpSilent();
  AdvancePhase();
  UpdateMove();
  UpdateFleet();
  if ((phase_ == Phase::kDone || stop_) && everybody_left()) return Turn::Done();
  return Turn::Idle(now + Milliseconds(100));
}

// Nobody may be there to tell of a member's end: it ran on another machine, or died before its
// registration was read. Later than a supervisor, which says more.
void Coordinator::GiveUpSilent() {
  if (now_ < next_silence_look_) return;
  next_silence_look_ = now_ + kLookEvery;
  const Duration limit = Seconds(options_.config.fleet.hung_after_s) + kPause;
  for (auto& [name, member] : members_) {
    if (!member.present) continue;
    if (member.joined && member.down_since && now_ - *member.down_since > kLeft) {
      LogWarning("{} (process {} on {}) has left: its connection ended {:.1f} s ago", name,
                 member.view.process, member.view.host, ToSeconds(now_ - *member.down_since));
      NoteTrouble(member.view.role, member.view.index, "its connection ended");
      MemberLeft(member.view.role, member.view.index, member.view.process);
      continue;
    }
    if (now_ - member.last_beat <= limit) continue;
    LogWarning("{} (process {} on {}) is given up: silent for {:.1f} s (fleet.hung_after_s)", name,
               member.view.process, member.view.host, ToSeconds(now_ - member.last_beat));
    NoteTrouble(member.view.role, member.view.index,
                fmt::format("silent for {:.1f} s, given up (fleet.hung_after_s)",
                            ToSeconds(now_ - member.last_beat)));
    MemberLeft(member.view.role, member.view.index, member.view.process);
  }
}

void Coordinator::AdvancePhase() {
  const auto advance = [this](Phase next) {
    if (next <= phase_) return;
    phase_ = next;
    LogInfo("the run is {}: {} {} done", PhaseName(phase_), StepsDone(),
            StepsName(options_.config));
  };
  const Config& c = options_.config;
  const bool solved = c.evaluator.solved_return != 0 && !evaluations_.empty() &&
                      evaluations_.back().return_mean >= c.evaluator.solved_return;
  if (StepsDone() >= std::int64_t(c.learner.total_steps) || solved) advance(Phase::kDraining);
  const Member* learner = Find(Role::kLearner);
  if (learner != nullptr && learner->view.finished) advance(Phase::kEvaluating);
  if (phase_ == Phase::kEvaluating) {
    const bool judged = !evaluations_.empty() && evaluations_.back().final;
    if (judged || !c.evaluator.enabled || FinalEpisodes(c) == 0) advance(Phase::kDone);
  }
}

const Coordinator::Member* Coordinator::Find(Role role) const {
  const auto it = members_.find(PeerName(role, 0));
  return it == members_.end() ? nullptr : &it->second;
}

std::int64_t Coordinator::StepsDone() const {
  if (IsSupervised(options_.config)) return reviews_done_;
  return retired_steps_ + members_done_;
}

std::int64_t Coordinator::StepsLeased() const {
  return retired_steps_ + members_done_ + members_leased_;
}

// The sums over all members follow: a beat costs the same however many there are.
void Coordinator::SetSteps(Member* member, std::int64_t granted, std::int64_t done) {
  if (member->present) members_leased_ += (granted - done) - (member->granted - member->done);
  members_done_ += done - member->done;
  member->granted = granted;
  member->done = done;
}

// Its leases return to the pool.
void Coordinator::Forget(Member* member) {
  SetSteps(member, member->done, member->done);
  member->present = false;
  peers_old_ = true;
}

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
    case MessageType::kBeat:
      return HandleBeat(message, std::move(reply));
    case MessageType::kStatus:
      return HandleStatus(std::move(reply));
    case MessageType::kScale:
      return HandleScale(message, std::move(reply));
    default:
      reply.Fail(
          InvalidArgument("the coordinator answers no message of type {}; is this the right "
                          "endpoint?",
                          int(message.type)));
  }
}

void Coordinator::Retire(Member* member) {
  retired_steps_ += member->done;
  Forget(member);
  SetSteps(member, 0, 0);
  retired_counters_ = MergeMetrics({retired_counters_, CountersOf(member->metrics)});
  *member = {};
}

Status Coordinator::CheckRequest(const RegisterRequest& request) const {
  const std::string name = PeerName(request.role, request.index);
  if (request.version != kTroopVersion) {
    return FailedPrecondition("{} is version {}, the coordinator is {}: install the same", name,
                              request.version, kTroopVersion);
  }
  const std::int64_t count = SeatCount(request.role);
  if (request.index == -1) return MayJoin(request.role);
  const bool seat = request.role == Role::kActor ? seats_.Has(request.role, request.index)
                                                 : request.index >= 0 && request.index < count;
  if (seat) return Status::Ok();
  return InvalidArgument("{}: this run has {} such roles; indices begin at 0", name, count);
}

void Coordinator::HandleRegister(const Message& message, Reply reply) {
  Result<RegisterRequest> request = DecodeBody<RegisterRequest>(message.body);
  if (!request.ok()) return reply.Fail(request.status());
  Status fits = CheckRequest(*request);
  if (fits.ok() && message.key != Role::kNone && message.key != request->role) {
    fits = FailedPrecondition("a key of the role {} can't register a {}; use that role's key",
                              RoleName(message.key), RoleName(request->role));
  }
  if (!fits.ok()) return reply.Fail(fits);
  const bool joins = request->index < 0;
  if (joins) {
    const Result<std::int32_t> index = FreeIndex(request->role);
    if (!index.ok()) return reply.Fail(index.status());
    request->index = *index;
  }
  const Result<std::uint64_t> number = TakeNumber();
  if (!number.ok()) return reply.Fail(number.status());
  const std::uint64_t incarnation = *number;
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
                           .resume_checkpoint = checkpoint_,
                           .env = ToBody(env_),
                           .group_secret = SecretFor(request->role),
                           .data_identity = options_.config.data_identity};
  reply.Send({.type = MessageType::kRegisterReply, .body = EncodeBody(body)});
}

// A member has the number that it was given; no other number is a newer self of it.
Status Coordinator::CheckOrigin(const Origin& caller, Time now) {
  const std::string name = PeerName(caller.role, caller.index);
  const auto it = members_.find(name);
  if (it != members_.end() && it->second.view.incarnation == caller.incarnation) {
    return Status::Ok();
  }
  if (caller.incarnation >= next_incarnation_ && invented_.Next(now)) {
    LogWarning("{} callers turned away, now {} with incarnation {}, which was never issued",
               invented_.number, name, caller.incarnation);
  }
  return Aborted("{} incarnation {} is not a member: another took its place, or it never had one",
                 name, caller.incarnation);
}

// What a role reports about other roles, and numbers that this coordinator issues.
Status Coordinator::CheckBeat(Role role, const BeatRequest& beat) const {
  if (!beat.checkpoint.empty() && role != Role::kLearner) {
    return InvalidArgument("a checkpoint ({}); only learners have one", OneLineOf(beat.checkpoint));
  }
  if (!beat.evaluations.empty() && role != Role::kEvaluator) {
    return InvalidArgument("{} evaluations; only evaluators make them", beat.evaluations.size());
  }
  if (beat.fleet_epoch > seats_.counts().epoch) {
    return InvalidArgument("fleet epoch {}; the newest is {}", beat.fleet_epoch,
                           seats_.counts().epoch);
  }
  if (beat.shard_term >= next_incarnation_ || beat.shard_move >= next_incarnation_) {
    return InvalidArgument("shard term {}, move {}; numbers below {} were issued", beat.shard_term,
                           beat.shard_move, next_incarnation_);
  }
  return Status::Ok();
}

void Coordinator::HandleBeat(const Message& message, Reply reply) {
  Result<BeatRequest> beat = DecodeBody<BeatRequest>(message.body);
  if (!beat.ok()) return reply.Fail(beat.status());
  const std::string name = PeerName(message.origin.role, message.origin.index);
  const auto it = members_.find(name);
  if (it == members_.end() || it->second.view.incarnation != message.origin.incarnation) {
    return reply.Fail(Aborted("{} incarnation {} is not a member: another took its place", name,
                              message.origin.incarnation));
  }
  if (const Status fits = CheckBeat(message.origin.role, *beat); !fits.ok()) {
    LogWarning("a beat of {} is refused: {}", name, fits.message());
    return reply.Fail(fits);
  }
  Member& member = it->second;
  member.last_beat = now_;
  peers_old_ = peers_old_ || member.endpoint != beat->endpoint;
  member.endpoint = beat->endpoint;
  member.fleet_epoch = beat->fleet_epoch;
  member.metrics = std::move(beat->metrics);
  const char* const work = WorkOf(message.origin.role).metric;
  const auto done = work == nullptr ? member.metrics.end() : member.metrics.find(work);
  if (done != member.metrics.end()) member.work.Note(now_, done->second.value);
  SetSteps(&member, member.granted, std::clamp(beat->steps_done, member.done, member.granted));
  if (message.origin.role == Role::kLearner) NoteUpdates();
  if (message.origin.role == Role::kLearner && IsSupervised(options_.config)) {
    const auto total = std::int64_t(options_.config.learner.total_steps);
    reviews_done_ = std::clamp(beat->steps_done, reviews_done_, total);
  }
  member.view.finished = beat->finished;
  member.blocked = OneLineOf(beat->blocked);
  member.shard_move = beat->shard_move;
  if (!beat->checkpoint.empty()) {
    checkpoint_ = beat->checkpoint;
    checkpoint_updates_ = beat->checkpoint_updates;
    checkpoint_final_ = beat->checkpoint_final;
  }
  for (EvaluationReport e : beat->evaluations) {
    // Parameter shards begin at version 1, before any update.
    if (shards_ && UpdatesOf(e.weights_version) > 0) --e.weights_version;
    // Told again, when the answer to the first telling was lost.
    if (std::ranges::find(evaluations_, e) != evaluations_.end()) continue;
    evaluations_.push_back(e);
    if (IsSupervised(options_.config)) {
      LogInfo("evaluation at {} reviews, {} updates: {:.2f} % of {} right{}", e.steps,
              UpdatesOf(e.weights_version), e.return_mean, e.episodes, SpreadText(true, e));
      continue;
    }
    LogInfo("evaluation at {} agent steps, {} updates: return {}", e.steps,
            UpdatesOf(e.weights_version), ReturnText(e));
  }
  AdvancePhase();
  if (!member.present) {  // its process has ended: these were its last words
    return reply.Fail(Aborted("{} incarnation {} has left", name, message.origin.incarnation));
  }
  if (shards_ && message.origin.role == Role::kParamServer && !beat->endpoint.empty()) {
    shards_->Beat(now_, message.origin.index, message.origin.incarnation, beat->shard_term);
  }
  if (!beat->ended.empty()) {
    NoteTrouble(member.view.role, member.view.index, OneLineOf(beat->ended),
                records_[name].failures);
    MemberLeft(member.view.role, member.view.index, member.view.process);
  }
  const BeatReply body = MakeBeatReply(&member, beat->ended.empty() ? beat->steps_wanted : 0);
  member.told = body.phase;
  member.told_stop = body.stop;
  reply.Send({.type = MessageType::kBeatReply, .body = EncodeBody(body)});
}

// Learners in step have the same; of those that pull from shards one has the newest.
void Coordinator::NoteUpdates() {
  double newest = -1;
  for (const auto& [name, member] : members_) {
    if (!member.present || member.view.role != Role::kLearner) continue;
    const auto version = member.metrics.find("learner/version");
    if (version != member.metrics.end()) newest = std::max(newest, version->second.value);
  }
  constexpr double kUpdatesMax = 1e15;  // of a double that counts
  if (newest >= 0 && newest < kUpdatesMax) updates_ = std::uint64_t(newest);
}

BeatReply Coordinator::MakeBeatReply(Member* member, std::int64_t wanted) {
  const auto total = std::int64_t(options_.config.learner.total_steps);
  if (phase_ == Phase::kRunning) {
    const std::int64_t left = total - StepsLeased();
    const std::int64_t asked = std::max(wanted, member->granted) - member->granted;
    const std::int64_t more = std::min(asked, std::max<std::int64_t>(left, 0));
    SetSteps(member, member->granted + more, member->done);
  }
  BeatReply body{.phase = phase_,
                 .stop = stop_,
                 .steps_granted = member->granted,
                 .steps_over = phase_ > Phase::kRunning || StepsLeased() >= total,
                 .steps_total_done = StepsDone()};
  body.issued = issued_;
  body.issued[0] = next_incarnation_ - 1;
  TellFleet(*member, &body);
  if (shards_) {
    body.shards = shards_->terms();
    body.shard_epochs = mover_->epochs();
    body.shard_move = mover_->move();
    const MemberView& view = member->view;
    body.stop = body.stop || (view.role == Role::kParamServer && view.index >= parameter_servers());
  }
  body.peers = Peers();
  return body;
}

void Coordinator::HandleStatus(Reply reply) {
  reply.Send({.type = MessageType::kStatusReply,
              .body = EncodeBody(StatusReply{ViewJson(View(), roles())})});
}

void Coordinator::MemberLeft(Role role, std::int32_t index, std::int64_t process) {
  const auto it = members_.find(PeerName(role, index));
  if (it == members_.end() || it->second.view.process != process) return;
  if (it->second.present && it->second.joined && role == Role::kActor) std::erase(joined_, index);
  Forget(&it->second);  // a beat that is still on its way adds nothing
  if (shards_ && role == Role::kParamServer) {
    shards_->Ended(index, it->second.view.incarnation);
    shards_->Update(now_);
  }
}

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
  const bool guest = it->second.joined && peer.role == Role::kActor;  // has a seat of its own
  if (guest ? !Needs(peer.role) : !Needs(peer.role, peer.index)) return;
  if (state == PeerState::kDown) LogWarning("{} is not heard any more", it->first);
  if (state == PeerState::kHung) LogWarning("{} hangs: only its process answers", it->first);
  if (state == PeerState::kUp) LogDebug("{} is heard", it->first);
}

bool Coordinator::Needs(Role role) const {
  if (stop_ || phase_ == Phase::kDone) return false;
  return role != Role::kActor || phase_ == Phase::kRunning;
}

bool Coordinator::Needs(Role role, std::int32_t index) const {
  const bool seat =
      role == Role::kParamServer ? index < parameter_servers() : seats_.Has(role, index);
  return Needs(role) && seat;
}

bool Coordinator::everybody_left() const {
  return std::ranges::all_of(members_, [this](const auto& entry) {
    const Member& m = entry.second;
    return !m.present || m.told == Phase::kDone || (stop_ && m.told_stop);
  });
}

RunView Coordinator::View() const {
  RunView view{.phase = phase_,
               .supervised = IsSupervised(options_.config),
               .steps = StepsDone(),
               .steps_total = std::int64_t(options_.config.learner.total_steps),
               .steps_at_start = options_.resume_steps,
               .updates_at_start = options_.resume_updates,
               .updates = updates_,
               .evaluations = evaluations_,
               .checkpoint = checkpoint_,
               .checkpoint_updates = checkpoint_updates_,
               .checkpoint_final = checkpoint_final_};
  // Of parameter shards: pushes that no learner has pulled are in the last weights too.
  if (!evaluations_.empty() && evaluations_.back().final) {
    view.updates = std::max(view.updates, UpdatesOf(evaluations_.back().weights_version));
  }
  if (checkpoint_final_) view.updates = std::max(view.updates, checkpoint_updates_);
  if (mover_) {
    view.shards = view.shards_wanted = mover_->shards();
    if (mover_->move().number != 0) view.shards_wanted = mover_->move().shards;
    view.shard_epoch = mover_->epochs().size();
  }
  std::vector<MetricSnapshot> snapshots{retired_counters_};
  for (const auto& [name, member] : members_) {
    if (member.present) {
      snapshots.push_back(member.metrics);
      continue;
    }
    snapshots.push_back(CountersOf(member.metrics));
    // At the end roles leave one by one: shares of what they all did stay those of all.
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

std::vector<MemberView> Coordinator::members() const {
  std::vector<MemberView> views;
  for (const auto& [name, member] : members_) {
    if (!member.present) continue;
    views.push_back(member.view);
    views.back().silent_s = ToSeconds(now_ - member.last_beat);
    if (member.down_since) views.back().down_s = ToSeconds(now_ - *member.down_since);
  }
  return views;
}

}  // namespace troop
