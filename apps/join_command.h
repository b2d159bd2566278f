#pragma once

#include <cstdint>
#include <string>

namespace troop {

struct JoinOptions {
  std::string coordinator;  // tcp://HOST:PORT
  std::string role = "actor";
  std::int32_t count = 1;
  std::string key;     // file; empty: none
  std::string listen;  // host at which others reach this machine; empty: where the coordinator does
  std::string logs;    // folder; empty: a new one among the system's temporary ones
  double wait_s = 60;  // for a coordinator that has no address yet, or does not answer
  bool stay = false;   // also while the run is stopped, until it goes on and is done
  std::string health;  // a file for `troop health`; empty: none
};
// `troop join`: so many roles of this machine for a run elsewhere: actors, or what its config
// leaves to others (fleet.elsewhere). Its config and addresses come from the coordinator, which
// also deals indices and the ladder. Ends when the run does (0), on SIGTERM or Ctrl-C (0: the
// actors leave, the run goes on), or when actors fail as often as fleet.restarts_max allows.
// Returns the exit code.
int Join(const JoinOptions& options);

}  // namespace troop
