// Implements IssuedIncarnations: protects against invented incarnations of unauthenticated callers.
#include "net/control/issued_incarnations.h"

#include "core/base/log.h"

namespace troop {
namespace {

// Maximum number of unconfirmed callers; further ones count as invented.
constexpr std::size_t kUnknownMax = 64;
// Time after which an unconfirmed caller is dropped; correct callers retry much sooner.
constexpr Duration kUnknownFor = Seconds(10);
// Interval of early heartbeats, which limits the load on the coordinator under a flood of invented
// numbers.
constexpr Duration kAskEvery = Milliseconds(25);

}  // namespace

Status IssuedIncarnations::Check(const Origin& caller, Time now) {
  if (caller.role == Role::kTool) return Status::Ok();
  const Caller key{caller.role, caller.index, caller.incarnation};
  const std::uint64_t newest = member_->NewestIssued(caller.role);
  if (caller.incarnation <= newest) {
    if (!unknown_.empty()) unknown_.erase(key);
    return Status::Ok();
  }
  const Status why = Unavailable(
      "{} claims incarnation {}, but the newest incarnation of role {} is {}",
      PeerName(caller.role, caller.index), caller.incarnation, RoleName(caller.role), newest);
  // A number counts as invented if the coordinator answered a heartbeat that was sent after the
  // first attempt, and still has no record of it.
  const auto known = unknown_.find(key);
  const bool full = known == unknown_.end() && unknown_.size() >= kUnknownMax;
  if (full || (known != unknown_.end() && member_->last_known() > known->second)) {
    if (invented_.Next(now)) {
      LogWarning(
          "rejected {} times: {}; it may be unauthorized (set security.keys to authenticate)",
          invented_.number, why.message());
    }
    if (full)
      std::erase_if(unknown_, [now](const auto& u) { return now - u.second > kUnknownFor; });
  } else if (known == unknown_.end()) {
    unknown_.emplace(key, now);
  }
  if (now >= next_ask_) {
    member_->SendHeartbeatSoon();
    next_ask_ = now + kAskEvery;
  }
  return why;
}

bool IssuedIncarnations::Has(Role role, std::uint64_t number) {
  if (number <= member_->NewestIssued(role)) return true;
  member_->SendHeartbeatSoon();
  return false;
}

}  // namespace troop
