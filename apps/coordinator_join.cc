// A Coordinator's part in who comes from other machines (`troop join`).
#include <sys/random.h>

#include <algorithm>
#include <cstring>

#include "apps/coordinator.h"
#include "apps/elsewhere.h"
#include "core/log.h"
#include "core/version.h"
#include "net/codec.h"

namespace troop {
namespace {

constexpr std::int32_t kActorsMax = 100000;  // as fleet.actors
constexpr std::size_t kSecretBytes = 32;

}  // namespace

// Seats that the run's own machine, or those who join, may fill. Actors may also come uninvited.
std::int64_t Coordinator::SeatCount(Role role) const {
  const Config& c = options_.config;
  switch (role) {
    case Role::kActor:
      return std::int64_t(seats_.actors().size());
    case Role::kEvaluator:
      return c.evaluator.enabled ? 1 : 0;
    case Role::kReplay:
      return seats_.replay();
    case Role::kParamServer:
      return parameter_servers();
    case Role::kLearner:
      return seats_.learners();
    case Role::kInference:
      return InferenceServersOf(c);
    default:
      return 0;
  }
}

Status Coordinator::MayJoin(Role role) const {
  if (role == Role::kActor) return Status::Ok();
  if (SeatCount(role) > 0 && IsElsewhere(options_.config, role)) return Status::Ok();
  return InvalidArgument(
      "{} of this run is played on its own machine; name it in fleet.elsewhere for others to join",
      RoleName(role));
}

Status Coordinator::CheckJoin(const JoinRequest& request, Role key) const {
  if (request.version != kTroopVersion) {
    return FailedPrecondition("troop on {} is version {}, the coordinator is {}: install the same",
                              request.host, request.version, kTroopVersion);
  }
  TROOP_RETURN_IF_ERROR(MayJoin(request.role));
  if (key != Role::kNone && key != request.role) {
    return FailedPrecondition("a key of the role {} can't join as {}; use that role's key",
                              RoleName(key), RoleName(request.role));
  }
  const std::int64_t most = request.role == Role::kActor ? kActorsMax : SeatCount(request.role);
  if (request.count < 1 || request.count > most) {
    return InvalidArgument("{} roles {} can't join; 1 to {}", request.count, RoleName(request.role),
                           most);
  }
  if (Needs(request.role)) return Status::Ok();
  return FailedPrecondition("the run is {}: it needs no more of the role {}", PhaseName(phase_),
                            RoleName(request.role));
}

void Coordinator::HandleJoin(const Message& message, Reply reply) {
  const Result<JoinRequest> request = DecodeBody<JoinRequest>(message.body);
  const Status may = request.ok() ? CheckJoin(*request, message.key) : request.status();
  if (!may.ok()) return reply.Fail(may);
  LogInfo("{} of the role {} join from {}", request->count, RoleName(request->role), request->host);
  const JoinReply body{.config_toml = ToToml(LiveConfig()), .present = CountMembers(request->role)};
  reply.Send({.type = MessageType::kJoinReply, .body = EncodeBody(body)});
}

std::int32_t Coordinator::CountMembers(Role role) const {
  return std::int32_t(std::ranges::count_if(members_, [role](const auto& entry) {
    return entry.second.present && entry.second.view.role == role;
  }));
}

int Coordinator::guests() const {
  return int(std::ranges::count_if(members_, [](const auto& entry) {
    const Member& m = entry.second;
    return m.present && m.joined && !m.down_since;
  }));
}

// Actors: the lowest behind those of the run's own machine. Others: the lowest that is empty.
Result<std::int32_t> Coordinator::FreeIndex(Role role) const {
  if (role != Role::kActor) {
    const auto count = std::int32_t(SeatCount(role));
    for (std::int32_t index = 0; index < count; ++index) {
      const auto member = members_.find(PeerName(role, index));
      if (member == members_.end() || !member->second.present) return index;
    }
    return ResourceExhausted("all {} seats of the role {} are taken", count, RoleName(role));
  }
  auto index =
      IsElsewhere(options_.config, Role::kActor) ? 0 : std::int32_t(options_.config.fleet.actors);
  while (std::ranges::binary_search(joined_, index) || seats_.Has(Role::kActor, index)) ++index;
  if (index < kActorsMax) return index;
  return ResourceExhausted("the run has {} actors, which is the limit", index);
}

// A restarted role binds where its peers already look for it, unless it comes from another place.
std::string Coordinator::ListenFor(const RegisterRequest& request, const Member& before) const {
  const std::string& known = !before.endpoint.empty() ? before.endpoint : before.listen;
  if (request.reach.empty()) {
    return !known.empty() ? known : options_.listen(request.role, request.index);
  }
  const std::string place = fmt::format("tcp://{}:", request.reach);
  return known.starts_with(place) ? known : place + "0";
}

// Learners alone hear it; over an encrypted connection, since it is there only where keys are.
std::string Coordinator::SecretFor(Role role) {
  if (role != Role::kLearner || options_.config.security.keys.empty()) return "";
  if (group_secret_.empty()) {
    group_secret_.resize(kSecretBytes);
    TROOP_CHECK(getrandom(group_secret_.data(), kSecretBytes, 0) == ssize_t(kSecretBytes),
                "no random numbers: {}", strerror(errno));
  }
  return group_secret_;
}

std::vector<std::string> Coordinator::EmptySeats() const {
  std::vector<std::string> empty;
  if (phase_ == Phase::kDone || stop_) return empty;
  for (const Role role :
       {Role::kReplay, Role::kParamServer, Role::kLearner, Role::kEvaluator, Role::kInference}) {
    if (!IsElsewhere(options_.config, role)) continue;
    for (std::int32_t index = 0; index < std::int32_t(SeatCount(role)); ++index) {
      const auto member = members_.find(PeerName(role, index));
      const bool there = member != members_.end() && member->second.present;
      if (!there && Needs(role, index)) empty.push_back(PeerName(role, index));
    }
  }
  const auto& fleet = options_.config.fleet;
  const std::int64_t least =
      std::max<std::int64_t>(fleet.actors_min, IsElsewhere(options_.config, Role::kActor) ? 1 : 0);
  if (Needs(Role::kActor) && CountMembers(Role::kActor) < least) {
    empty.push_back(fmt::format("{} of {} actors", least - CountMembers(Role::kActor), least));
  }
  return empty;
}

}  // namespace troop
