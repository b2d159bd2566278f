#include "net/issued.h"

#include "core/log.h"

namespace troop {
namespace {

// Unconfirmed callers that are remembered; with more, each further one counts as invented.
constexpr std::size_t kUnknownMax = 64;
// Honest callers ask again long before.
constexpr Duration kUnknownFor = Seconds(10);
// A flood of invented numbers costs the coordinator so many beats.
constexpr Duration kAskEvery = Milliseconds(25);

}  // namespace

Status IssuedNumbers::Check(const Origin& caller, Time now) {
  if (caller.role == Role::kTool) return Status::Ok();
  const Caller key{caller.role, caller.index, caller.incarnation};
  const std::uint64_t newest = member_->NewestIssued(caller.role);
  if (caller.incarnation <= newest) {
    if (!unknown_.empty()) unknown_.erase(key);
    return Status::Ok();
  }
  const Status why = Unavailable(
      "{} claims incarnation {}, the newest {} that the coordinator has issued is {}",
      PeerName(caller.role, caller.index), caller.incarnation, RoleName(caller.role), newest);
  const auto known = unknown_.find(key);
  const bool full = known == unknown_.end() && unknown_.size() >= kUnknownMax;
  if (full || (known != unknown_.end() && member_->last_known() > known->second)) {
    if (invented_.Next(now)) {
      LogWarning("turned away {} times: {}; it may be a stranger (security.keys keeps them out)",
                 invented_.number, why.message());
    }
    if (full)
      std::erase_if(unknown_, [now](const auto& u) { return now - u.second > kUnknownFor; });
  } else if (known == unknown_.end()) {
    unknown_.emplace(key, now);
  }
  if (now >= next_ask_) {
    member_->BeatSoon();
    next_ask_ = now + kAskEvery;
  }
  return why;
}

bool IssuedNumbers::Has(Role role, std::uint64_t number) {
  if (number <= member_->NewestIssued(role)) return true;
  member_->BeatSoon();
  return false;
}

}  // namespace troop
