#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "apps/serial_fleet.h"
#include "core/config.h"
#include "core/status.h"
#include "core/time.h"

namespace troop {

// Seconds after which an actor, one of so many, takes a peer for dead: fleet.dead_after_s, and more
// of more than 250, up to four times as much, so that their heartbeats cost a coordinator of 1,000
// what those of 250 do.
double ActorsDeadAfter(const Config& config, std::int64_t actors);

// Keeps the role processes of one machine alive: starts them, reaps them, restarts those that fail
// (exponential back-off, at most restarts_max times in a row, the reason in the log), and ends
// them. A role that worked for restart_window_s begins a new row. One that refuses its command line
// or its config, finds a damaged file at its start or gives up (exit codes 2, 4, 5) is not started
// again: nothing would change. A child dies with its
// supervisor (PR_SET_PDEATHSIG): no orphan goes on. Owner: one thread, the one that made it.
// Nothing blocks.
class Supervisor {
 public:
  struct Options {
    std::string executable;   // of `troop`
    std::string coordinator;  // endpoint
    std::string log_folder;   // absolute; holds <role>-<index>.log
    Config config;
    std::string key_file;        // of all roles; empty: each has its own in security.keys, if set
    bool index_is_given = true;  // else the coordinator gives it; ours only tells logs apart
    // How a role is started, where that is not as a process of this machine: replaces program and
    // words. Its log stays ours.
    std::function<void(FleetRole, std::string* program, std::vector<std::string>* words)> wrap;
    // Seats that the run can do without: their failures do not end it, and they are restarted
    // without a limit. One that no restart cures is not; the run ends where that is true of all.
    std::function<bool(FleetRole)> spare;
    std::function<std::string(FleetRole)> log_name;  // empty: PeerName
    std::string reach;                               // then: this machine's address for others
    bool stay = false;  // a run that is stopped will go on: who is sent away comes again
  };
  struct Exit {
    FleetRole role;
    pid_t process = 0;
    std::string reason;         // "exit code 1", "killed by signal 9 (Killed)"
    bool orderly = false;       // exit code 0
    bool failed = false;        // another exit code; neither: a signal ended it
    int code = -1;              // its exit code; -1: a signal ended it
    std::int64_t failures = 0;  // in a row, where a restart follows
    std::string restart;        // then: "restart 1 of at most 20 in 0.1 s"
  };
  Supervisor(Options options, std::vector<FleetRole> roles);
  ~Supervisor();  // kills what still runs
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // One more role; no change where it is known.
  void Add(FleetRole role);

  // Tells whether the run still needs a role: only then is it started, and started again when it
  // ended, orderly or not.
  using Needed = std::function<bool(FleetRole)>;
  // Starts what is due, reaps what ended. Returns what ended since the last call.
  std::vector<Exit> Tick(Time now, const Needed& needed);
  void Signal(int number);  // to all children
  // SIGKILL, unless another process plays the role by now; it will be restarted.
  void Kill(FleetRole role, pid_t process, const std::string& why);
  struct Running {
    FleetRole role;
    pid_t process = 0;
    Time since{};
  };
  std::vector<Running> running() const;
  int alive() const;
  std::int64_t restarts() const { return restarts_; }
  // Not ok: a role failed more often than it may, or in a way that no restart cures.
  Status status() const { return status_; }
  // The exit code of the role that no restart cures; 0: there is none.
  int permanent_code() const { return permanent_code_; }
  std::string LogTail(FleetRole role) const;  // its last line that says something
  // "; replay-0 is restoring: 12 of 90 segments, 4 s so far, about 26 s left", of the first role
  // but actors whose log ends with a PhaseProgress; else empty.
  std::string PhaseText() const;

 private:
  struct Child {
    FleetRole role;
    pid_t process = 0;  // 0: not running
    Time start_at{};    // when it shall be started
    Time started{};
    std::int64_t failures = 0;  // in a row
    std::string kill_reason;    // not empty: it hung, and was killed
    bool lost = false;          // a spare one that no restart cures
  };
  void Start(Child* child, Time now);
  Exit HandleExit(Child* child, int wait_status, Time now, bool needed);
  void CountFailure(Child* child, Time now, bool hung);
  void GiveUp(Child* child, int code, const std::string& reason);
  void ScheduleRestart(Child* child, Time now, const std::string& reason, Exit* exit);
  std::string NameOf(FleetRole role) const;
  std::string LogFile(FleetRole role) const;

  const Options options_;
  std::vector<Child> children_;
  std::int64_t restarts_ = 0;
  Status status_;
  int permanent_code_ = 0;
};

}  // namespace troop
