// Coordinator: admits roles from other machines (`troop join`).
#include <sys/random.h>

#include <algorithm>
#include <cstring>

#include "core/base/log.h"
#include "core/base/version.h"
#include "fleet/coordinator/coordinator.h"
#include "fleet/roles/external_roles.h"
#include "net/wire/codec.h"

namespace troop {
namespace {

constexpr std::int32_t kActorsMax = 100000;  // the limit of fleet.actors
constexpr std::size_t kSecretBytes = 32;

}  // namespace

// Number of slots of a role, local or external. External actors may join beyond it.
std::int64_t Coordinator::SlotCount(Role role) const {
  const Config& c = options_.config;
  switch (role) {
    case Role::kActor:
      return std::int64_t(slots_.actors().size());
    case Role::kEvaluator:
      return c.evaluator.enabled ? 1 : 0;
    case Role::kReplay:
      return slots_.replay();
    case Role::kParamServer:
      return parameter_servers();
    case Role::kLearner:
      return slots_.learners();
    case Role::kInference:
      return InferenceServersOf(c);
    default:
      return 0;
  }
}

// Actors may always join; other roles only if fleet.external_roles names them.
Status Coordinator::MayJoin(Role role) const {
  if (role == Role::kActor) return Status::Ok();
  if (SlotCount(role) > 0 && IsExternal(options_.config, role)) return Status::Ok();
  return InvalidArgument(
      "the role {} of this run is local; add it to fleet.external_roles so that it can join "
      "remotely",
      RoleName(role));
}

// Checks version, role, key, count and phase, in this order.
Status Coordinator::CheckJoin(const JoinRequest& request, Role key) const {
  if (request.version != kTroopVersion) {
    return FailedPrecondition("troop on {} is version {}, the coordinator is {}; install the same",
                              request.host, request.version, kTroopVersion);
  }
  TROOP_RETURN_IF_ERROR(MayJoin(request.role));
  if (key != Role::kNone && key != request.role) {
    return FailedPrecondition("a key of the role {} can't join as {}; use the key of that role",
                              RoleName(key), RoleName(request.role));
  }
  const std::int64_t most = request.role == Role::kActor ? kActorsMax : SlotCount(request.role);
  if (request.count < 1 || request.count > most) {
    return InvalidArgument("{} roles {} can't join, must be 1 to {}", request.count,
                           RoleName(request.role), most);
  }
  if (Needs(request.role)) return Status::Ok();
  return FailedPrecondition("the run is {} and needs no more processes of the role {}",
                            PhaseName(lifecycle_.phase()), RoleName(request.role));
}

// Answers `troop join` before it starts any process: whether the roles may join, and the config.
void Coordinator::HandleJoin(const Message& message, Reply reply) {
  const Result<JoinRequest> request = DecodeBody<JoinRequest>(message.body);
  const Status may = request.ok() ? CheckJoin(*request, message.key) : request.status();
  if (!may.ok()) return reply.Fail(may);
  LogInfo("{} processes of the role {} join from {}", request->count, RoleName(request->role),
          request->host);
  const JoinReply body{.config_toml = ToToml(LiveConfig()),
                       .present = membership_.CountPresent(request->role)};
  reply.Send({.type = MessageType::kJoinReply, .body = EncodeBody(body)});
}

// The index for an external role. Actors get the lowest free one after the local actors, other
// roles the lowest empty slot.
// The search is linear, which is fine for rare joins.
Result<std::int32_t> Coordinator::FreeIndex(Role role) const {
  if (role != Role::kActor) {
    const auto count = std::int32_t(SlotCount(role));
    for (std::int32_t index = 0; index < count; ++index) {
      if (!membership_.Has(role, index)) return index;
    }
    return ResourceExhausted("all {} slots of the role {} are taken", count, RoleName(role));
  }
  auto index =
      IsExternal(options_.config, Role::kActor) ? 0 : std::int32_t(options_.config.fleet.actors);
  const std::vector<std::int32_t>& joined = membership_.joined_actors();
  while (std::ranges::binary_search(joined, index) || slots_.Has(Role::kActor, index)) ++index;
  if (index < kActorsMax) return index;
  return ResourceExhausted("the run has {} actors, which is the limit", index);
}

// The bind address of a role. A restarted role keeps the endpoint that its peers have, unless it
// is on another machine now.
std::string Coordinator::ListenFor(const RegisterRequest& request,
                                   const MemberRecord* before) const {
  std::string known;
  if (before != nullptr) known = !before->endpoint.empty() ? before->endpoint : before->listen;
  if (request.reach.empty()) {
    return !known.empty() ? known : options_.listen(request.role, request.index);
  }
  const std::string place = fmt::format("tcp://{}:", request.reach);
  return known.starts_with(place) ? known : place + "0";
}

// The secret of the learners' process group; empty for other roles and without keys, since it may
// only travel over an encrypted connection.
std::string Coordinator::SecretFor(Role role) {
  if (role != Role::kLearner || options_.config.security.keys.empty()) return "";
  if (group_secret_.empty()) {
    group_secret_.resize(kSecretBytes);
    TROOP_CHECK(getrandom(group_secret_.data(), kSecretBytes, 0) == ssize_t(kSecretBytes),
                "no random numbers: {}", strerror(errno));
  }
  return group_secret_;
}

// External service roles first, then the missing actors as one entry.
std::vector<std::string> Coordinator::EmptySlots() const {
  std::vector<std::string> empty;
  if (lifecycle_.over()) return empty;
  for (const Role role :
       {Role::kReplay, Role::kParamServer, Role::kLearner, Role::kEvaluator, Role::kInference}) {
    if (!IsExternal(options_.config, role)) continue;
    for (std::int32_t index = 0; index < std::int32_t(SlotCount(role)); ++index) {
      if (!membership_.Has(role, index) && Needs(role, index)) {
        empty.push_back(PeerName(role, index));
      }
    }
  }
  const auto& fleet = options_.config.fleet;
  const std::int64_t least =
      std::max<std::int64_t>(fleet.actors_min, IsExternal(options_.config, Role::kActor) ? 1 : 0);
  const std::int32_t present = membership_.CountPresent(Role::kActor);
  if (Needs(Role::kActor) && present < least) {
    empty.push_back(fmt::format("{} of {} actors", least - present, least));
  }
  return empty;
}

}  // namespace troop
