#pragma once

#include <cstdint>
#include <string>

#include "apps/command_line.h"

namespace troop {

// Arguments of `troop role`, which the launcher starts for each role of a run.
struct RoleArguments {
  std::string role, coordinator;
  std::int32_t index = 0;
  bool auto_index = false;
  bool rejoin = false;
  double heartbeat_timeout_s = 1.5;
  std::string key;  // key file; empty: without keys
  bool insecure = false;
  std::string advertise_host;
};

// `troop role`: runs one role until it is done. The exit code shows whether a restart
// can help (docs/reference/commands.md).
int RunRole(const RoleArguments& a);

// Adds `troop role` to `app`.
void RegisterRole(CLI::App& app, ChosenCommand* chosen);

}  // namespace troop
