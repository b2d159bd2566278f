// Implements the network service of a ParameterShard: parked requests, leases, and the rule that
// nothing is answered before the backup has it.
#include "paramserver/service/shard_server.h"

#include <algorithm>
#include <utility>

#include "net/wire/codec.h"

namespace troop {

namespace {

// Extra lease of a reconnected learner after a takeover: it may be computing a gradient.
constexpr Duration kReconnectedLease = Seconds(60);

}  // namespace

// Members from a snapshot get a lease; they stay members if they push or pull in time.
ShardServer::ShardServer(std::unique_ptr<ParameterShard> shard, const Options& options)
    : options_(options), shard_(std::move(shard)) {
  for (const SyncPolicy::Member& member : shard_->policy().members()) {
    if (!member.live) continue;
    incarnations_[member.learner] = 0;
    absent_[member.learner] = {};
  }
  Note(HistoryEvent::kServed, {}, shard_->version());
}

// Records an event for the checks of the simulation tests.
void ShardServer::Note(HistoryEvent::What what, const PushId& id, std::uint64_t version) const {
  if (options_.history == nullptr) return;
  options_.history->Note({.what = what,
                          .stream = std::uint64_t(id.learner),
                          .first_frame = id.sequence,
                          .version = version,
                          .shard = options_.shard,
                          .epoch = shard_->epoch(),
                          .lineage = options_.lineage,
                          .incarnation = id.incarnation});
}

// Renews a learner's lease.
void ShardServer::RenewLease(const Origin& learner) {
  incarnations_[learner.index] = learner.incarnation;
  absent_.erase(learner.index);
}

ShardServer::~ShardServer() {
  FailOpenRequests(Unavailable("this parameter server is shutting down"));
}

// Every request may make updates due, or answers possible, so Settle runs after it.
void ShardServer::Handle(Message message, Reply reply) {
  if (paused_ && message.origin.role == Role::kLearner) {
    return reply.Fail(Unavailable("the shard is paused for resharding; retry later"));
  }
  Status status;
  if (message.type == MessageType::kShardPush) {
    status = Push(std::move(message), &reply);
  } else if (message.type == MessageType::kShardPull) {
    status = Pull(message, &reply);
  } else {
    status = InvalidArgument("parameter shard: unexpected message type {}", int(message.type));
  }
  if (!status.ok()) {
    ++refused_;
    reply.Fail(status);
  }
  Settle();
}

// Hands a push to the shard. After a takeover an unknown learner is a member: it joined at the old
// primary.
Status ShardServer::Push(Message message, Reply* reply) {
  TROOP_ASSIGN_OR_RETURN(ShardPush push,
                         ReadShardPush(std::move(message), shard_->size(), shard_->epoch()));
  const PushId id = push.id;
  const Origin origin = {.index = id.learner, .incarnation = id.incarnation};
  if (options_.is_failover && !IsKnown(id.learner) && shard_->HasRoomFor(id.learner)) {
    shard_->Join(id.learner);
  }
  TROOP_ASSIGN_OR_RETURN(const auto outcome, shard_->Push(std::move(push)));
  RenewLease(origin);
  if (outcome == ParameterShard::Outcome::kHeld) {
    pushes_.insert_or_assign(id, std::move(*reply));  // of duplicates, the last one is answered
  } else {
    settled_.push_back({std::move(*reply), outcome});
  }
  return Status::Ok();
}

// Parks a pull. Readers that are not learners, or that name a version, do not wait for the policy.
Status ShardServer::Pull(const Message& message, Reply* reply) {
  TROOP_ASSIGN_OR_RETURN(const ShardPullBody body, DecodeBody<ShardPullBody>(message.body));
  if (body.epoch != shard_->epoch()) {
    return FailedPrecondition("the pull is for shard map {}, this is map {}; fetch it", body.epoch,
                              shard_->epoch());
  }
  if (message.origin.role != Role::kLearner || body.exact != 0) {
    readers_.push_back({std::move(*reply), body});
    return Status::Ok();
  }
  const std::int32_t learner = message.origin.index;
  // Answered at once and without parts.
  if (body.leave) {
    shard_->Leave(learner);
    incarnations_.erase(learner);
    absent_.erase(learner);
    pulls_.erase(learner);
    reply->Send({.type = MessageType::kShardPullReply,
                 .body = EncodeBody(ShardPullReplyBody{.newest = shard_->version(),
                                                       .lineage = options_.lineage})});
    return Status::Ok();
  }
  if (!shard_->HasRoomFor(learner)) {
    return ResourceExhausted("learner {}: too many learners are members", learner);
  }
  shard_->Join(learner);
  RenewLease(message.origin);
  Parked& parked = pulls_[learner];
  // Only one pull per learner waits; the older one was resent or abandoned.
  if (parked.reply) parked.reply.Fail(Cancelled("learner {} pulled again", learner));
  parked = {std::move(*reply), body};
  return Status::Ok();
}

void ShardServer::AnswerPush(Reply* reply, ParameterShard::Outcome outcome) const {
  reply->Send({.type = MessageType::kShardPushReply,
               .body = EncodeBody(ShardPushReplyBody{std::uint8_t(outcome), shard_->version()})});
}

// Replies with the snapshot or the error.
void ShardServer::AnswerPull(Parked parked) {
  Result<Message> answer = MakePullReply(parked.body);
  if (answer.ok()) return parked.reply.Send(std::move(*answer));
  ++refused_;
  parked.reply.Fail(answer.status());
}

// `known` counts only within one lineage: versions of another one are not comparable.
Result<Message> ShardServer::MakePullReply(const ShardPullBody& body) {
  Message answer{.type = MessageType::kShardPullReply};
  ShardPullReplyBody head{.newest = shard_->version(), .lineage = options_.lineage};
  const std::uint64_t known = body.lineage == options_.lineage ? body.known : 0;
  if (body.exact != 0 || known < shard_->version()) {
    TROOP_ASSIGN_OR_RETURN(const WeightSnapshot snapshot, shard_->Pull(body.exact));
    head.version = snapshot.version;
    constexpr std::size_t kMost = std::size_t(kPartFloatsMax) * sizeof(float);
    for (std::size_t at = 0; at < snapshot.value.size(); at += kMost) {
      answer.parts.push_back(snapshot.value.Slice(at, std::min(kMost, snapshot.value.size() - at)));
    }
  }
  answer.body = EncodeBody(head);
  return answer;
}

// Sends the replies that were waiting for the backup.
void ShardServer::AnswerSettled() {
  for (Settled& settled : settled_) {
    AnswerPush(&settled.reply, settled.outcome);
    if (settled.outcome == ParameterShard::Outcome::kHeld) {
      Note(HistoryEvent::kApplied, settled.id, settled.version);
    }
  }
  settled_.clear();
  for (Parked& reader : readers_) AnswerPull(std::move(reader));
  readers_.clear();
}

// Answers learners' pulls, after all due updates, so that the replies include their own pushes.
void ShardServer::AnswerPulls() {
  for (auto it = pulls_.begin(); it != pulls_.end();) {
    if (!shard_->MayPull(it->first)) {
      ++it;
      continue;
    }
    AnswerPull(std::move(it->second));
    it = pulls_.erase(it);
  }
}

// Applies updates one at a time: each is answered, or replicated, before the next begins.
void ShardServer::Settle() {
  for (;;) {
    const bool may_answer = MayAnswer();
    if (may_answer) AnswerSettled();
    const auto update = shard_->ApplyNext(may_answer && !updates_paused_);
    if (!update && may_answer) AnswerPulls();
    if (!update) return;
    for (const ShardUpdate::Settled& settled : update->settled) {
      const auto it = pushes_.find(settled.id);
      if (it == pushes_.end()) continue;
      settled_.push_back(
          {std::move(it->second), ParameterShard::Outcome::kHeld, settled.id, update->version});
      pushes_.erase(it);
    }
    if (backup_) backup_->SendUpdate(*update);
  }
}

// The state is sent first, then every update.
void ShardServer::SetBackup(std::unique_ptr<BackupClient> backup) {
  backup_ = std::move(backup);
  if (backup_) backup_->SendState(shard_->Snapshot());
  Settle();
}

void ShardServer::SetPrimaryConfirmed(bool confirmed) {
  if (confirmed == std::exchange(primary_confirmed_, confirmed)) return;
  if (confirmed) Settle();
}

void ShardServer::SetPaused(bool paused) {
  if (paused == std::exchange(paused_, paused)) return;
  if (!paused) Settle();
}

// Threads finish what they have begun.
bool ShardServer::PauseUpdates() {
  updates_paused_ = true;
  Settle();
  return shard_->applying() == 0;
}

void ShardServer::ResumeUpdates() {
  if (std::exchange(updates_paused_, false)) Settle();
}

void ShardServer::StopServing() {
  FailOpenRequests(Unavailable("another process serves this shard now"));
}

// Fails all open requests.
void ShardServer::FailOpenRequests(const Status& status) {
  for (auto& [id, reply] : pushes_) reply.Fail(status);
  for (Settled& settled : settled_) settled.reply.Fail(status);
  for (auto& [learner, parked] : pulls_) parked.reply.Fail(status);
  for (Parked& reader : readers_) reader.reply.Fail(status);
  pushes_.clear(), settled_.clear(), pulls_.clear(), readers_.clear();
}

// A lost connection starts the lease. A reconnected member of a snapshot gets a longer one, because
// it may be computing; any other reconnection ends the absence.
void ShardServer::PeerChanged(const Origin& peer, PeerState state) {
  if (peer.role != Role::kLearner) return;
  const auto life = incarnations_.find(peer.index);
  if (life == incarnations_.end() || (life->second != 0 && life->second != peer.incarnation))
    return;
  if (state == PeerState::kDown || state == PeerState::kHung) {
    Absence& absence =
        absent_.try_emplace(peer.index, Absence{.incarnation = peer.incarnation}).first->second;
    if (absence.reconnected) absence = {.incarnation = peer.incarnation};
  } else if (state == PeerState::kUp && life->second == 0) {
    life->second = peer.incarnation;
    absent_[peer.index] = {.incarnation = peer.incarnation, .reconnected = true};
  } else if (state == PeerState::kUp) {
    RenewLease(peer);
  }
}

bool ShardServer::IsKnown(std::int32_t learner) const {
  return std::ranges::binary_search(shard_->policy().members(), learner, {},
                                    &SyncPolicy::Member::learner);
}

// Stops waiting for learners that never joined, once the join time is over.
bool ShardServer::EndJoining(Time now) {
  if (!ticked_) join_until_ = now + options_.join_within;
  ticked_ = true;
  if (now < join_until_) return false;
  join_until_ = kForever;
  for (std::int32_t i = 0; i < shard_->policy().options().learners; ++i) {
    if (!IsKnown(i)) shard_->Leave(i);
  }
  return true;
}

// Polls the backup and ends expired leases; both may make updates due.
void ShardServer::Tick(Time now) {
  bool due = EndJoining(now) || shard_->applying() > 0;
  if (backup_ && !backup_->has_all()) {
    backup_->Poll(now);
    if (backup_->NeedsState(now)) backup_->SendState(shard_->Snapshot());
    due = true;
  }
  for (auto it = absent_.begin(); it != absent_.end();) {
    const auto life = incarnations_.find(it->first);
    // A new incarnation has its own lease.
    const bool replaced = life == incarnations_.end() || life->second != it->second.incarnation;
    if (it->second.until == kForever) {
      it->second.until =
          now + options_.lease + (it->second.reconnected ? kReconnectedLease : Duration(0));
    }
    if (!replaced && now < it->second.until) {
      ++it;
      continue;
    }
    if (!replaced) {
      shard_->Leave(it->first);
      incarnations_.erase(life);
      pulls_.erase(it->first);
      ++leases_ended_;
      due = true;
    }
    it = absent_.erase(it);
  }
  if (due) Settle();
}

// Earliest end of a lease or of the join time.
Time ShardServer::next_tick() const {
  Time next = ticked_ ? join_until_ : Time{};
  for (const auto& [learner, absence] : absent_) {
    next = std::min(next, absence.until == kForever ? Time{} : absence.until);
  }
  return next;
}

void ShardServer::Report(Metrics* metrics) const {
  shard_->Report(metrics);
  metrics->Gauge("paramserver/leases_expired", double(leases_ended_), MetricKind::kCounter);
  metrics->Gauge("paramserver/rejected_requests", double(refused_), MetricKind::kCounter);
  metrics->Gauge("paramserver/version", double(shard_->version()), MetricKind::kGaugeMax);
  metrics->Gauge("paramserver/backups", backup_ && backup_->has_all() ? 1 : 0,
                 MetricKind::kGaugeSum);
  metrics->Gauge("paramserver/learners", double(incarnations_.size()), MetricKind::kGaugeMax);
}

}  // namespace troop
