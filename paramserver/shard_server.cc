#include "paramserver/shard_server.h"

#include <algorithm>
#include <utility>

#include "net/codec.h"

namespace troop {

ShardServer::ShardServer(std::unique_ptr<ParameterShard> shard, const Options& options)
    : options_(options), shard_(std::move(shard)) {
  for (const SyncPolicy::Member& member : shard_->policy().members()) {
    if (!member.live) continue;
    lives_[member.learner] = 0;
    absent_[member.learner] = {};
  }
}

void ShardServer::Present(const Origin& learner) {
  lives_[learner.index] = learner.incarnation;
  absent_.erase(learner.index);
}

void ShardServer::Handle(Message message, Reply reply) {
  Status status;
  if (message.type == MessageType::kShardPush) {
    status = Push(std::move(message), &reply);
  } else if (message.type == MessageType::kShardPull) {
    status = Pull(message, &reply);
  } else {
    status = InvalidArgument("parameter shard: message type {} is not for it", int(message.type));
  }
  if (!status.ok()) {
    ++refused_;
    reply.Fail(status);
  }
  Settle();
}

Status ShardServer::Push(Message message, Reply* reply) {
  TROOP_ASSIGN_OR_RETURN(ShardPush push, ReadShardPush(std::move(message), shard_->size()));
  const PushId id = push.id;
  const Origin origin = {.index = id.learner, .incarnation = id.incarnation};
  TROOP_ASSIGN_OR_RETURN(const auto outcome, shard_->Push(std::move(push)));
  Present(origin);
  if (outcome == ParameterShard::Outcome::kHeld) {
    pushes_.insert_or_assign(id, std::move(*reply));  // of a repeat, the last one is answered
  } else {
    AnswerPush(reply, outcome);
  }
  return Status::Ok();
}

Status ShardServer::Pull(const Message& message, Reply* reply) {
  TROOP_ASSIGN_OR_RETURN(const ShardPullBody body, DecodeBody<ShardPullBody>(message.body));
  if (body.epoch != shard_->epoch()) {
    return FailedPrecondition("a pull for shard map {}; this is {}: fetch it", body.epoch,
                              shard_->epoch());
  }
  if (message.origin.role != Role::kLearner || body.exact != 0) return AnswerPull(body, reply);
  const std::int32_t learner = message.origin.index;
  if (!shard_->HasRoomFor(learner)) {
    return ResourceExhausted("learner {}: there are too many already", learner);
  }
  shard_->Join(learner);
  Present(message.origin);
  if (shard_->MayPull(learner)) return AnswerPull(body, reply);
  Parked& parked = pulls_[learner];
  if (parked.reply) parked.reply.Fail(Cancelled("learner {} pulled again", learner));
  parked = {std::move(*reply), body};
  return Status::Ok();
}

void ShardServer::AnswerPush(Reply* reply, ParameterShard::Outcome outcome) const {
  reply->Send({.type = MessageType::kShardPushReply,
               .body = EncodeBody(ShardPushReplyBody{std::uint8_t(outcome), shard_->version()})});
}

Status ShardServer::AnswerPull(const ShardPullBody& body, Reply* reply) {
  Message answer{.type = MessageType::kShardPullReply};
  ShardPullReplyBody head{.newest = shard_->version()};
  if (body.exact != 0 || body.known < shard_->version()) {
    TROOP_ASSIGN_OR_RETURN(const WeightSnapshot snapshot, shard_->Pull(body.exact));
    head.version = snapshot.version;
    constexpr std::size_t kMost = std::size_t(kPartFloatsMax) * sizeof(float);
    for (std::size_t at = 0; at < snapshot.value.size(); at += kMost) {
      answer.parts.push_back(snapshot.value.Slice(at, std::min(kMost, snapshot.value.size() - at)));
    }
  }
  answer.body = EncodeBody(head);
  reply->Send(std::move(answer));
  return Status::Ok();
}

void ShardServer::Settle() {
  while (const auto update = shard_->ApplyNext()) {
    for (const ShardUpdate::Settled& settled : update->settled) {
      const auto it = pushes_.find(settled.id);
      if (it == pushes_.end()) continue;
      AnswerPush(&it->second, ParameterShard::Outcome::kHeld);
      pushes_.erase(it);
    }
  }
  for (auto it = pulls_.begin(); it != pulls_.end();) {
    if (!shard_->MayPull(it->first)) {
      ++it;
      continue;
    }
    const Status status = AnswerPull(it->second.body, &it->second.reply);
    if (!status.ok()) it->second.reply.Fail(status);
    it = pulls_.erase(it);
  }
}

void ShardServer::PeerChanged(const Origin& peer, PeerState state) {
  if (peer.role != Role::kLearner) return;
  const auto life = lives_.find(peer.index);
  if (life == lives_.end() || (life->second != 0 && life->second != peer.incarnation)) return;
  if (state == PeerState::kDown || state == PeerState::kHung) {
    absent_.try_emplace(peer.index, Absence{.incarnation = peer.incarnation});
  } else if (state == PeerState::kUp) {
    Present(peer);
  }
}

// Whoever never came at all.
bool ShardServer::EndJoining(Time now) {
  if (!ticked_) join_until_ = now + options_.join_within;
  ticked_ = true;
  if (now < join_until_) return false;
  join_until_ = kForever;
  for (std::int32_t i = 0; i < shard_->policy().options().learners; ++i) {
    const auto members = shard_->policy().members();
    if (std::ranges::find(members, i, &SyncPolicy::Member::learner) == members.end()) {
      shard_->Leave(i);
    }
  }
  return true;
}

void ShardServer::Tick(Time now) {
  bool left = EndJoining(now);
  for (auto it = absent_.begin(); it != absent_.end();) {
    const auto life = lives_.find(it->first);
    const bool replaced = life == lives_.end() || life->second != it->second.incarnation;
    if (it->second.until == kForever) it->second.until = now + options_.lease;
    if (!replaced && now < it->second.until) {
      ++it;
      continue;
    }
    if (!replaced) {
      shard_->Leave(it->first);
      lives_.erase(life);
      pulls_.erase(it->first);
      ++leases_ended_;
      left = true;
    }
    it = absent_.erase(it);
  }
  if (left) Settle();
}

Time ShardServer::next_tick() const {
  Time next = ticked_ ? join_until_ : Time{};
  for (const auto& [learner, absence] : absent_) {
    next = std::min(next, absence.until == kForever ? Time{} : absence.until);
  }
  return next;
}

void ShardServer::Report(Metrics* metrics) const {
  shard_->Report(metrics);
  metrics->Gauge("paramserver/leases_ended", double(leases_ended_), MetricKind::kCounter);
  metrics->Gauge("paramserver/refused", double(refused_), MetricKind::kCounter);
  metrics->Gauge("paramserver/learners", double(lives_.size()), MetricKind::kGaugeMax);
}

}  // namespace troop
