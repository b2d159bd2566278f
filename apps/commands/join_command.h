#pragma once

#include <cstdint>
#include <string>

#include "apps/command_line.h"

namespace troop {

// Options of `troop join`.
struct JoinOptions {
  std::string coordinator;  // tcp://HOST:PORT
  std::string role = "actor";
  std::int32_t count = 1;
  std::string key;             // file; empty: none
  std::string advertise_host;  // host at which the fleet reaches this machine; empty: the route's
  std::string logs;            // folder; empty: a new temporary folder
  double wait_s = 60;          // to wait for a coordinator that does not resolve or answer yet
  bool rejoin = false;         // wait while the run is stopped, until it is resumed and done
  std::string health;          // a file for `troop health`; empty: none
};
// `troop join`: runs `count` roles on this machine for a run on another machine: actors, or
// external roles (fleet.external_roles). The coordinator sends the config and the addresses, and
// assigns indices and exploration rates. Ends when the run ends (0), on SIGTERM or Ctrl-C (0: the
// actors leave and the run continues), or when a role fails more often than fleet.restarts_max
// allows. Returns the exit code.
int Join(const JoinOptions& options);

// Adds `troop join` to `app`.
void RegisterJoin(CLI::App& app, ChosenCommand* chosen);
// Adds `troop health` to `app`, which reads the status file of `troop join --health`.
void RegisterHealth(CLI::App& app, ChosenCommand* chosen);

}  // namespace troop
