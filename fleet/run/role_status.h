#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/time.h"
#include "core/metrics/metrics.h"
#include "net/message.h"

namespace troop {

class JsonObject;

// The human-readable state of one role, as the coordinator has it. Supervision does not use it.
struct RoleView {
  enum class State : std::uint8_t {
    kAlive = 0,
    kSilent = 1,      // no heartbeat for fleet.heartbeat_timeout_s, or disconnected
    kDead = 2,        // it exited, and the run needs it
    kMissing = 3,     // in the config, but never registered
    kFinished = 4,    // exited or never registered, and no longer needed
    kAwaited = 5,     // external (fleet.external_roles), and has not joined
    kBlocked = 6,     // alive without progress; see `reason`
    kRestarting = 7,  // failed and will be restarted, or in a restart loop
  };
  Role role = Role::kNone;
  std::int32_t index = 0;
  State state = State::kMissing;
  std::uint64_t incarnation = 0;  // the last one; 0: none
  std::int64_t process = 0;
  std::string host;
  bool joined = false;                // external, in addition to the roles of the config
  std::int64_t restarts = 0;          // earlier incarnations of this role
  double heartbeat_age_s = 0;         // since its last heartbeat
  double work = 0;                    // of this incarnation, in WorkOf's unit
  double work_per_s = 0;              // over the last seconds
  std::optional<double> lag_updates;  // actors: age of their weights, in updates
  std::string last_error;             // why this or the previous incarnation ended; empty: no error
  std::string reason;                 // for kBlocked and kRestarting
};
const char* StateName(RoleView::State state);  // "alive"

// JSON of a role: role, state, host, process, incarnation, restarts, heartbeat_age_s, work, unit,
// work_per_s; lag_updates, last_error and reason if present.
JsonObject RoleJson(const RoleView& role);

// The metric that measures a role's speed, and its unit; null for roles without one.
struct RoleWork {
  const char* metric = nullptr;  // "actor/steps"
  const char* unit = nullptr;    // "steps"
};
RoleWork WorkOf(Role role);

// Rate of a counter, Δwork / Δtime, from heartbeats at irregular times and in constant memory. It
// covers one to two windows (3 s) up to the last heartbeat. Decays without heartbeats, so a hung
// role approaches 0.
class WorkRate {
 public:
  // Takes a counter value; a lower one than before restarts the measurement.
  void Note(Time now, double work);
  double PerSecond(Time now) const;  // 0 before the second value
  double work() const { return last_.work; }

 private:
  struct Point {
    Time time{};
    double work = 0;
  };
  Point from_, next_, last_;
  bool any_ = false;
};

}  // namespace troop
