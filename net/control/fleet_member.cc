// Implements FleetMember: heartbeats to the coordinator and the state received in its replies.
#include "net/control/fleet_member.h"

#include <algorithm>
#include <utility>

#include "net/wire/codec.h"

namespace troop {
namespace {

// Heartbeat interval of learners and shards during resharding: learners pause until they receive
// the end of the move.
constexpr Duration kBeatWhileMoving = Milliseconds(25);
// Upper bound of the interval that a coordinator may request.
constexpr Duration kBeatSeldom = Seconds(2);

// True for errors that end the membership: fenced, or keys or versions do not match. Retries would
// fail too.
bool EndsMembership(const Status& status) {
  return status.code() == Code::kAborted || status.code() == Code::kFailedPrecondition;
}

}  // namespace

FleetMember::FleetMember(std::unique_ptr<Channel> channel, const Options& options)
    : channel_(std::move(channel)), options_(options) {}

std::string FleetMember::Endpoint(Role role, std::int32_t index) const {
  const auto it = state_.peers.find(PeerName(role, index));
  return it == state_.peers.end() ? std::string() : it->second.endpoint;
}

std::uint64_t FleetMember::Incarnation(Role role, std::int32_t index) const {
  const auto it = state_.peers.find(PeerName(role, index));
  return it == state_.peers.end() ? 0 : it->second.incarnation;
}

std::uint64_t FleetMember::NewestIssued(Role role) const {
  const auto i = std::size_t(role);
  const std::uint64_t issued = i < state_.issued.size() ? state_.issued[i] : 0;
  return role == options_.role ? std::max(issued, options_.incarnation) : issued;
}

ShardTerm FleetMember::Shard(std::int32_t k) const {
  return k < std::ssize(state_.shards) ? state_.shards[std::size_t(k)] : ShardTerm{};
}

void FleetMember::Poll(Time now, const Metrics& metrics) { Poll(now, &metrics); }

void FleetMember::Poll(Time now) { Poll(now, nullptr); }

// Receives the answer of the last heartbeat, then sends the next one if it is due.
void FleetMember::Poll(Time now, const Metrics* metrics) {
  if (!last_answer_) last_answer_ = now;
  Receive(now);
  if (ticket_ != 0 || now < next_heartbeat_ || !lost_.ok()) return;
  if (metrics != nullptr) report_.metrics = metrics->snapshot();
  Message message{.type = MessageType::kMemberHeartbeat, .body = EncodeBody(report_)};
  Result<Ticket> ticket = channel_->Send(message, now + options_.deadline);
  const bool moves = state_.shard_move.number != 0 &&
                     (options_.role == Role::kLearner || options_.role == Role::kParamServer);
  // The coordinator requests longer intervals in large fleets, bounded so that a member never
  // counts as hung.
  const Duration seldom = std::min<Duration>(kBeatSeldom, options_.hung_after / 3);
  const Duration every =
      std::clamp<Duration>(Milliseconds(state_.heartbeat_every_ms), options_.heartbeat_every,
                           std::max(options_.heartbeat_every, seldom));
  next_heartbeat_ = now + (moves ? std::min(options_.heartbeat_every, kBeatWhileMoving) : every);
  if (!ticket.ok()) {
    // Fenced between two heartbeats, when no call was open that could fail.
    if (EndsMembership(ticket.status())) lost_ = ticket.status();
    return;  // else the window is full; the next heartbeat contains this one
  }
  ticket_ = *ticket;
  sent_ = now;
  // Evaluations are removed from the report once this heartbeat is answered.
  evaluations_sent_ = report_.evaluations.size();
}

void FleetMember::Receive(Time now) {
  if (ticket_ == 0) return;
  std::optional<Result<Message>> answer = channel_->Poll(ticket_);
  if (!answer) {
    // The coordinator is unreachable for too long.
    if (now - *last_answer_ > options_.alone_max) {
      lost_ =
          Unavailable("no answer from the coordinator for {:.0f} s", ToSeconds(options_.alone_max));
    }
    return;
  }
  ticket_ = 0;
  Result<HeartbeatReply> reply = answer->ok() ? DecodeBody<HeartbeatReply>((*answer)->body)
                                              : Result<HeartbeatReply>(answer->status());
  if (!reply.ok()) {
    if (EndsMembership(reply.status())) lost_ = reply.status();
    return;
  }
  last_answer_ = now;
  last_known_ = sent_;
  report_.evaluations.erase(report_.evaluations.begin(),
                            report_.evaluations.begin() + std::ptrdiff_t(evaluations_sent_));
  evaluations_sent_ = 0;
  // A coordinator that has just started sends no statistics yet.
  if (reply->rewards.count <= 0) reply->rewards = state_.rewards;
  state_ = std::move(*reply);
  NoteMoved();
}

// Collects changed endpoints, for Network::Redirect.
void FleetMember::NoteMoved() {
  for (const auto& [name, peer] : state_.peers) {
    // The sockets of learners belong to their group, which looks them up at each generation.
    if (name.starts_with(RoleName(Role::kLearner))) continue;
    std::string& known = endpoints_[name];
    if (!known.empty() && known != peer.endpoint) moved_.emplace_back(known, peer.endpoint);
    known = peer.endpoint;
  }
}

}  // namespace troop
