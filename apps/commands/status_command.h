#pragma once

#include <string>

#include "apps/command_line.h"

namespace troop {

// Options of `troop status`.
struct StatusOptions {
  std::string run;  // run folder, or tcp://HOST:PORT of its coordinator
  bool json = false;
  std::string key;  // with tcp://: key file of a tool; empty: none
};
// `troop status`: prints the state of a run, role by role, or how it ended. Returns the exit code.
int ShowStatus(const StatusOptions& options);

// Adds `troop status` to `app`.
void RegisterStatus(CLI::App& app, ChosenCommand* chosen);

}  // namespace troop
