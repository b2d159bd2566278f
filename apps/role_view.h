#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/metrics.h"
#include "core/time.h"
#include "net/message.h"

namespace troop {

// One role of a run as its coordinator knows it: for people who watch, not for supervision.
struct RoleView {
  enum class State : std::uint8_t {
    kAlive = 0,
    kSilent = 1,      // no word for fleet.dead_after_s and more, or its connection has ended
    kDead = 2,        // it was there and is gone, and the run needs it
    kMissing = 3,     // the config has it and it never came
    kFinished = 4,    // gone, or never come, and needed no more
    kAwaited = 5,     // the run waits for one to join (fleet.elsewhere)
    kBlocked = 6,     // alive, and makes no progress: `reason` says why
    kRestarting = 7,  // it failed and is about to be restarted, or failed again and again of late
  };
  Role role = Role::kNone;
  std::int32_t index = 0;
  State state = State::kMissing;
  std::uint64_t incarnation = 0;  // of the last one; 0: none
  std::int64_t process = 0;
  std::string host;
  bool joined = false;                // from elsewhere, beside those of the config
  std::int64_t restarts = 0;          // incarnations under this name before the last one
  double silent_s = 0;                // since its last word
  double work = 0;                    // of this incarnation, in WorkOf's unit
  double work_per_s = 0;              // over the last seconds
  std::optional<double> lag_updates;  // how old its weights are; of actors
  std::string last_error;             // why the one before it ended, or this one; empty: no trouble
  std::string reason;                 // of kBlocked and kRestarting
};
const char* StateName(RoleView::State state);  // "alive"

// For programs: role, state, host, process, incarnation, restarts, silent_s, work, unit,
// work_per_s, lag_updates where it has one, last_error and reason where there is one.
std::string RoleJson(const RoleView& role);

// By what a role's speed is told: a counter of its metrics, and what it counts.
struct RoleWork {
  const char* metric = nullptr;  // "actor/steps"
  const char* unit = nullptr;    // "steps"
};
RoleWork WorkOf(Role role);

// Δwork / Δtime, in constant memory and from beats that come whenever they come: over a span of one
// to two windows that ends with the last beat. Silence lowers it, so that who hangs is seen to do
// nothing.
class WorkRate {
 public:
  void Note(Time now, double work);
  double PerSecond(Time now) const;  // 0 until two were noted
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
