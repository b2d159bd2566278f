#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/base/time.h"
#include "core/metrics/metrics.h"
#include "fleet/coordinator/step_leases.h"
#include "fleet/run/role_status.h"
#include "fleet/run/run_state.h"
#include "net/control/phase.h"
#include "net/control/reward_statistics.h"
#include "net/message.h"

namespace troop {

// The newest incarnation of a role, as the coordinator tracks it. The record of a process that left
// stays until its slot is taken again, with `present` false.
struct MemberRecord {
  MemberView view;
  std::string endpoint;  // empty: it is not bound yet, or has no service
  std::string listen;    // where it binds, also after a restart
  MetricSnapshot metrics;
  RewardStatistics rewards;  // actor: of its last heartbeat
  StepLease steps;
  std::uint64_t shard_move = 0, fleet_epoch = 0;  // those of its last heartbeat
  Time last_beat{};
  Phase told = Phase::kRunning;  // phase in the last heartbeat reply
  bool told_stop = false;        // that reply requested a stop
  std::string blocked;           // why it makes no progress; empty: it does
  bool present = false;
  bool joined = false;             // external: not watched by the launcher's supervisor
  std::optional<Time> down_since;  // its connection ended
  WorkRate work;

  // False for external actors: RoleSlots does not count them.
  bool has_slot() const { return !joined || view.role != Role::kActor; }
};

// History of a role name across its incarnations.
struct RoleHistory {
  std::int64_t registered = 0;  // number of registrations
  std::string last_error;
  Time error_at{};
  Role role = Role::kNone;  // of last_error
  std::int32_t index = 0;
  std::int64_t failures = 0;  // consecutive, as of error_at
};

}  // namespace troop
