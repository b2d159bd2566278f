#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "core/base/status.h"
#include "core/base/time.h"
#include "fleet/config/config.h"
#include "fleet/coordinator/member_record.h"
#include "fleet/coordinator/membership.h"
#include "fleet/coordinator/role_slots.h"
#include "net/control/heartbeat_request.h"
#include "net/control/scale_request.h"
#include "net/message.h"
#include "net/network.h"

namespace troop {

// Scales the actors, learners and replay shards of a running fleet (`troop scale`): checks a
// request, changes the slots, and answers when the members match them. Parameter shards are scaled
// by ParameterResharding.
//
// Invariants: at most one change is pending, and its request is answered once. Replay shards leave
// only when no actor inserts there and their items are replaced (RoleSlots).
// Owner: the coordinator. O(members) per look; looks every 50 ms at most.
class ScaleController {
 public:
  // Checks that the machine has room for a scaled config; empty: no check.
  using RoomCheck = std::function<Status(const Config&)>;
  // The observed state, with which the slots are compared.
  struct FleetState {
    const Membership& members;
    bool running = false;  // the run neither drains nor ends
    Time now{};
  };
  // `config`: that of the run's start, borrowed.
  ScaleController(const Config* config, RoomCheck may_have)
      : config_(config), may_have_(std::move(may_have)), slots_(*config) {}

  // The current slots; a new epoch marks each change.
  const RoleSlots& slots() const { return slots_; }
  // The config with the current numbers of roles.
  Config LiveConfig() const;
  // The config for a role that registers now. The capacity per replay shard is that of the run's
  // start, so scaling up adds capacity.
  Config ConfigFor(Role role) const;

  // Checks a request for a role of ScaledRole, and changes its slots. Errors: kInvalidArgument: the
  // role or the count can't be scaled in this run; kFailedPrecondition: the run ends, or another
  // change is pending; those of the room check.
  Status Begin(Role role, const ScaleRequest& request, const FleetState& fleet);
  // Keeps the reply until the change that Begin started is complete or has failed.
  void Await(Reply reply) { change_->reply = std::move(reply); }
  // Completes the pending change when the roles have joined or left, and removes drained replay
  // shards. Fails the change after 50 s, or when the run ends.
  void Update(const FleetState& fleet);
  // Fills the part of a heartbeat reply that depends on the slots: their numbers, a stop request
  // for a member without a slot, and an actor's place in the exploration ladder.
  void FillReply(const MemberRecord& member, const Membership& members,
                 HeartbeatReply* reply) const;

 private:
  // A request in progress; its caller waits for the reply.
  struct Change {
    Role role = Role::kNone;
    std::int32_t before = 0, after = 0;
    bool shards_leave = false;
    Time began{};
    Reply reply;
  };
  Status CheckRole(Role role, const ScaleRequest& request) const;
  Status CheckScaledConfig(Role role, const ScaleRequest& request) const;
  void ChangeReplay(std::int32_t count, const Membership& members);
  void UpdateLeavingShards(const Membership& members);
  void GiveUp(const FleetState& fleet);
  bool IsDone(const Membership& members) const;
  void End(const Status& outcome, Time now);
  std::int32_t CountInSlots(Role role, const Membership& members) const;
  std::int32_t SlotsOf(Role role) const;

  const Config* const config_;
  const RoomCheck may_have_;
  RoleSlots slots_;
  std::optional<Change> change_;
  Time next_look_{};
};

}  // namespace troop
