#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "fleet/config/config.h"
#include "fleet/coordinator/membership.h"
#include "fleet/coordinator/role_slots.h"
#include "fleet/coordinator/run_lifecycle.h"
#include "net/control/phase.h"
#include "net/message.h"

namespace troop {

// The processes that a run needs at this moment: its desired state, with which the coordinator
// compares the members.
//
// Invariant: reads its parts and changes none. It is made for one call, since its parts change.
// Owner: the coordinator. O(log actors) per call unless stated otherwise.
class DesiredRoles {
 public:
  // Borrowed, except the number of parameter servers, which includes those that join or leave.
  struct Parts {
    const Config* config = nullptr;
    const RunLifecycle* lifecycle = nullptr;
    const RoleSlots* slots = nullptr;
    std::int32_t parameter_servers = 0;
  };
  explicit DesiredRoles(const Parts& parts) : parts_(parts) {}

  Phase phase() const { return parts_.lifecycle->phase(); }
  // True while the run needs processes of this role, or the process of this slot.
  bool Needs(Role role) const { return parts_.lifecycle->Needs(role); }
  bool Needs(Role role, std::int32_t index) const;
  // Number of slots of a role, local or external. External actors may join beyond it.
  std::int64_t SlotCount(Role role) const;
  // True if a process may register with this index.
  bool HasSlot(Role role, std::int32_t index) const;
  // All slots: replay, parameter servers, learners, inference servers, actors, evaluator. O(slots).
  std::vector<std::pair<Role, std::int32_t>> All() const;
  // Empty slots that the run needs filled: external roles ("replay-0"), and actors below
  // fleet.actors_min as one entry ("1 of 2 actors"). O(members).
  std::vector<std::string> EmptySlots(const Membership& members) const;

 private:
  const Parts parts_;
};

}  // namespace troop
