#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "core/base/status.h"
#include "fleet/config/config.h"
#include "fleet/coordinator/desired_roles.h"
#include "fleet/coordinator/member_record.h"
#include "fleet/coordinator/membership.h"
#include "net/control/join_request.h"
#include "net/control/register_request.h"
#include "net/message.h"

namespace troop {

// Admission control of a run: which processes may register or join, under which index, at which
// address, and with which secret. Membership::Admit follows.
//
// Invariants:
// - The key of a process, if there are keys, decides which role it may take, not its request.
// - Only learners of a run with keys receive the secret of their group, which stays the same.
// Owner: the coordinator. O(log members) per call unless stated otherwise.
class AdmissionControl {
 public:
  // Bind endpoint of a role: (kReplay, 0) -> "tcp://10.0.0.1:7000".
  using Listen = std::function<std::string(Role, std::int32_t)>;
  // `config`: borrowed.
  AdmissionControl(const Config* config, Listen listen)
      : config_(config), listen_(std::move(listen)) {}

  // Checks version, slot and key, in this order, of a process that registers; kNone: no key.
  // Errors: kFailedPrecondition: another version or key; kInvalidArgument: no such slot.
  Status CheckRegister(const RegisterRequest& request, Role key, const DesiredRoles& desired) const;
  // Checks version, role, key, count and phase, in this order, before `troop join` starts
  // processes. Errors: as CheckRegister; kFailedPrecondition: the run needs no more of them.
  Status CheckJoin(const JoinRequest& request, Role key, const DesiredRoles& desired) const;
  // Chooses the index for an external role. Actors get the lowest free one after the local actors,
  // other roles the lowest empty slot. Errors: kResourceExhausted. O(members), for rare joins.
  Result<std::int32_t> ChooseIndex(Role role, const DesiredRoles& desired,
                                   const Membership& members) const;
  // The bind address of a role. `before`: the last record of the role; null: none. A restarted role
  // keeps the endpoint that its peers have, unless it is on another machine now.
  std::string ListenFor(const RegisterRequest& request, const MemberRecord* before) const;
  // The secret of the learners' process group; empty for other roles and without keys, since it may
  // only travel over an encrypted connection.
  std::string SecretFor(Role role);

 private:
  Status CheckExternal(Role role, const DesiredRoles& desired) const;

  const Config* const config_;
  const Listen listen_;
  std::string group_secret_;  // made for the first learner
};

}  // namespace troop
