// Implements the desired state of a fleet: which slots there are, and which of them are needed.
#include "fleet/coordinator/desired_roles.h"

#include <fmt/format.h>

#include <algorithm>

#include "fleet/roles/external_roles.h"

namespace troop {

// A role may be needed as such while this slot was scaled away.
bool DesiredRoles::Needs(Role role, std::int32_t index) const {
  const bool slot = role == Role::kParamServer ? index < parts_.parameter_servers
                                               : parts_.slots->Has(role, index);
  return Needs(role) && slot;
}

// Slots that `troop scale` changes are counted by the slots, all others by the config.
std::int64_t DesiredRoles::SlotCount(Role role) const {
  const Config& c = *parts_.config;
  switch (role) {
    case Role::kActor:
      return std::int64_t(parts_.slots->actors().size());
    case Role::kEvaluator:
      return c.evaluator.enabled ? 1 : 0;
    case Role::kReplay:
      return parts_.slots->replay();
    case Role::kParamServer:
      return parts_.parameter_servers;
    case Role::kLearner:
      return parts_.slots->learners();
    case Role::kInference:
      return InferenceServersOf(c);
    default:
      return 0;
  }
}

// The indices of local actors may have gaps; those of the other roles begin at 0.
bool DesiredRoles::HasSlot(Role role, std::int32_t index) const {
  return role == Role::kActor ? parts_.slots->Has(role, index)
                              : index >= 0 && index < SlotCount(role);
}

// In the order in which a fleet starts: services before their clients.
std::vector<std::pair<Role, std::int32_t>> DesiredRoles::All() const {
  std::vector<std::pair<Role, std::int32_t>> all;
  const auto add = [&](Role role) {
    for (std::int32_t k = 0; k < SlotCount(role); ++k) all.emplace_back(role, k);
  };
  for (const Role role : {Role::kReplay, Role::kParamServer, Role::kLearner, Role::kInference}) {
    add(role);
  }
  for (const std::int32_t index : parts_.slots->actors()) all.emplace_back(Role::kActor, index);
  add(Role::kEvaluator);
  return all;
}

// External service roles first, then the missing actors.
std::vector<std::string> DesiredRoles::EmptySlots(const Membership& members) const {
  std::vector<std::string> empty;
  if (parts_.lifecycle->over()) return empty;
  const Config& c = *parts_.config;
  for (const Role role :
       {Role::kReplay, Role::kParamServer, Role::kLearner, Role::kEvaluator, Role::kInference}) {
    if (!IsExternal(c, role)) continue;
    for (std::int32_t index = 0; index < SlotCount(role); ++index) {
      if (!members.Has(role, index) && Needs(role, index)) empty.push_back(PeerName(role, index));
    }
  }
  const std::int64_t least =
      std::max<std::int64_t>(c.fleet.actors_min, IsExternal(c, Role::kActor) ? 1 : 0);
  const std::int32_t present = members.CountPresent(Role::kActor);
  if (Needs(Role::kActor) && present < least) {
    empty.push_back(fmt::format("{} of {} actors", least - present, least));
  }
  return empty;
}

}  // namespace troop
