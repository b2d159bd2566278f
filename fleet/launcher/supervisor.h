#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/base/time.h"
#include "fleet/config/config.h"
#include "fleet/serial/serial_fleet.h"

namespace troop {

// Seconds of silence after which one of `actors` actors declares a peer dead:
// fleet.heartbeat_timeout_s, scaled up to four times between 250 and 1,000 actors, so that the
// coordinator's heartbeat load stays that of 250.
double ActorsDeadAfter(const Config& config, std::int64_t actors);

// Keeps the role processes of one machine running: starts, reaps, restarts and kills them.
//
// A failed role is restarted with exponential backoff, at most restarts_max times in a row; running
// for restart_window_s resets the count. A fork that fails (e.g. EAGAIN) counts as a failure too.
// Exit codes 2, 4 and 5 (bad command line or config, damaged file, gave up) are permanent: a
// restart would fail the same way. Children die with the supervisor (PR_SET_PDEATHSIG), so none is
// orphaned. Owner: the thread that made it. No call blocks.
class Supervisor {
 public:
  struct Options {
    std::string executable;   // path of `troop`
    std::string coordinator;  // endpoint
    std::string log_folder;   // absolute; holds <role>-<index>.log
    Config config;
    std::string key_file;        // key for all roles; empty: one per role from security.keys
    bool index_is_given = true;  // false: the coordinator assigns it; ours only names the log
    // Replaces program and arguments of a role that is not a plain local process (srun). The log
    // file stays local.
    std::function<void(FleetRole, std::string* program, std::vector<std::string>* words)> wrap;
    // True for optional slots: they are restarted without a limit and their failures do not end
    // the run, unless all optional slots have failed permanently.
    std::function<bool(FleetRole)> spare;
    std::function<std::string(FleetRole)> log_name;  // empty: PeerName
    // With index_is_given false: address of this machine for other machines.
    std::string advertise_host;
    // Starts a process with its output in the file `log`; empty: StartChild. For tests.
    std::function<Result<pid_t>(const std::string& program, std::vector<std::string> words,
                                const std::string& log)>
        spawn{};
    bool rejoin = false;  // passes --rejoin: roles rejoin after the run was stopped and resumed
  };
  struct Exit {
    FleetRole role;
    pid_t process = 0;          // 0: it could not be started
    std::string reason;         // "exit code 1", "killed by signal 9 (Killed)", "fork failed: …"
    bool orderly = false;       // exit code 0
    bool failed = false;        // another exit code, or not started; neither: a signal ended it
    int code = -1;              // its exit code; -1: a signal ended it, or it was not started
    std::int64_t failures = 0;  // consecutive failures, if a restart follows
    std::string restart;        // if so: "restart 1 of at most 20 in 0.1 s"
  };
  Supervisor(Options options, std::vector<FleetRole> roles);
  ~Supervisor();  // kills what still runs
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // Adds a role; does nothing if it is present.
  void Add(FleetRole role);

  // True if the run still needs a role: only then is it started, or restarted after any exit.
  using Needed = std::function<bool(FleetRole)>;
  // Starts due roles and reaps exited ones. Returns the exits since the last call, including roles
  // that could not be started.
  std::vector<Exit> Tick(Time now, const Needed& needed);
  // Sends a signal to all children.
  void Signal(int number);
  // Sends SIGKILL if `process` is still the role's current one; the role will be restarted.
  void Kill(FleetRole role, pid_t process, const std::string& why);
  struct Running {
    FleetRole role;
    pid_t process = 0;
    Time since{};
  };
  std::vector<Running> running() const;
  int alive() const;
  std::int64_t restarts() const { return restarts_; }
  // Failed after too many restarts of a role, or after a permanent failure.
  Status status() const { return status_; }
  // Exit code of the permanent failure; 0: there is none.
  int permanent_code() const { return permanent_code_; }
  // The last meaningful line of the role's log (LastLine).
  std::string LogTail(FleetRole role) const;
  // "; replay-0 is restoring: 12 of 90 segments, 4 s so far, about 26 s left", for the first
  // non-actor role whose log ends with a PhaseProgress; else empty.
  std::string PhaseText() const;

 private:
  struct Child {
    FleetRole role;
    pid_t process = 0;  // 0: not running
    Time start_at{};    // earliest start, after backoff
    Time started{};
    std::int64_t failures = 0;  // consecutive
    std::string kill_reason;    // set if it was killed because it hung
    bool lost = false;          // optional slot that failed permanently
  };
  Status Start(Child* child, Time now);
  Exit HandleFailedStart(Child* child, const Status& why, Time now);
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
