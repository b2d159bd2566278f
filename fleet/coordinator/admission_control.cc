// Implements the admission of processes, local ones and those of `troop join`.
#include "fleet/coordinator/admission_control.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "core/base/check.h"
#include "core/base/version.h"
#include "fleet/roles/external_roles.h"
#include "fleet/run/run_state.h"

namespace troop {
namespace {

constexpr std::int32_t kActorsMax = 100000;  // the limit of fleet.actors
constexpr std::size_t kSecretBytes = 32;

}  // namespace

// Actors may always join; other roles only if fleet.external_roles names them.
Status AdmissionControl::CheckExternal(Role role, const DesiredRoles& desired) const {
  if (role == Role::kActor) return Status::Ok();
  if (desired.SlotCount(role) > 0 && IsExternal(*config_, role)) return Status::Ok();
  return InvalidArgument(
      "the role {} of this run is local; add it to fleet.external_roles so that it can join "
      "remotely",
      RoleName(role));
}

// Versions must be equal: mixed fleets are not supported. Index -1: external; its index is chosen
// later, so here only its role must be needed.
Status AdmissionControl::CheckRegister(const RegisterRequest& request, Role key,
                                       const DesiredRoles& desired) const {
  const std::string name = PeerName(request.role, request.index);
  if (request.version != kTroopVersion) {
    return FailedPrecondition("{} is version {}, the coordinator is {}; install the same", name,
                              request.version, kTroopVersion);
  }
  if (request.index == -1) {
    TROOP_RETURN_IF_ERROR(CheckExternal(request.role, desired));
  } else if (!desired.HasSlot(request.role, request.index)) {
    return InvalidArgument("{}: this run has {} roles of this kind; indices begin at 0", name,
                           desired.SlotCount(request.role));
  }
  if (key != Role::kNone && key != request.role) {
    return FailedPrecondition("a key of the role {} can't register as {}; use the key of that role",
                              RoleName(key), RoleName(request.role));
  }
  return Status::Ok();
}

// The process has neither an index nor a config yet, so only its role and number are checked.
Status AdmissionControl::CheckJoin(const JoinRequest& request, Role key,
                                   const DesiredRoles& desired) const {
  if (request.version != kTroopVersion) {
    return FailedPrecondition("troop on {} is version {}, the coordinator is {}; install the same",
                              request.host, request.version, kTroopVersion);
  }
  TROOP_RETURN_IF_ERROR(CheckExternal(request.role, desired));
  if (key != Role::kNone && key != request.role) {
    return FailedPrecondition("a key of the role {} can't join as {}; use the key of that role",
                              RoleName(key), RoleName(request.role));
  }
  const std::int64_t most =
      request.role == Role::kActor ? kActorsMax : desired.SlotCount(request.role);
  if (request.count < 1 || request.count > most) {
    return InvalidArgument("{} roles {} can't join, must be 1 to {}", request.count,
                           RoleName(request.role), most);
  }
  if (desired.Needs(request.role)) return Status::Ok();
  return FailedPrecondition("the run is {} and needs no more processes of the role {}",
                            PhaseName(desired.phase()), RoleName(request.role));
}

// Actors get the lowest index beyond those of the config; other roles the lowest free slot. An
// index of an actor that has left is not used again while it is counted as joined.
Result<std::int32_t> AdmissionControl::ChooseIndex(Role role, const DesiredRoles& desired,
                                                   const Membership& members) const {
  if (role != Role::kActor) {
    const auto count = std::int32_t(desired.SlotCount(role));
    for (std::int32_t index = 0; index < count; ++index) {
      if (!members.Has(role, index)) return index;
    }
    return ResourceExhausted("all {} slots of the role {} are taken", count, RoleName(role));
  }
  auto index = IsExternal(*config_, Role::kActor) ? 0 : std::int32_t(config_->fleet.actors);
  const std::vector<std::int32_t>& joined = members.joined_actors();
  while (std::ranges::binary_search(joined, index) || desired.HasSlot(Role::kActor, index)) ++index;
  if (index < kActorsMax) return index;
  return ResourceExhausted("the run has {} actors, which is the limit", index);
}

// An address that starts with the machine's own is on the same machine as before.
std::string AdmissionControl::ListenFor(const RegisterRequest& request,
                                        const MemberRecord* before) const {
  std::string known;
  if (before != nullptr) known = !before->endpoint.empty() ? before->endpoint : before->listen;
  if (request.reach.empty()) {
    return !known.empty() ? known : listen_(request.role, request.index);
  }
  // A member on another machine: the port is chosen there (0) unless it is known.
  const std::string place = fmt::format("tcp://{}:", request.reach);
  return known.starts_with(place) ? known : place + "0";
}

// Made at the first request, so that runs without keys need no random numbers.
std::string AdmissionControl::SecretFor(Role role) {
  if (role != Role::kLearner || config_->security.keys.empty()) return "";
  if (group_secret_.empty()) {
    group_secret_.resize(kSecretBytes);
    TROOP_CHECK(getrandom(group_secret_.data(), kSecretBytes, 0) == ssize_t(kSecretBytes),
                "no random numbers: {}", strerror(errno));
  }
  return group_secret_;
}

}  // namespace troop
