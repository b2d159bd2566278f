#pragma once

#include <string>

#include "apps/command_line.h"

namespace troop {

// Options of `troop scale`.
struct ScaleOptions {
  std::string run;   // run folder
  std::string what;  // "actors=64", "replay=2", "learners=2", "paramserver=4"
};
// `troop scale`: asks the coordinator of a live run for another number of roles of a kind. Blocks
// until the change is done or abandoned. Returns the exit code.
int Scale(const ScaleOptions& options);

// Adds `troop scale` to `app`.
void RegisterScale(CLI::App& app, ChosenCommand* chosen);

}  // namespace troop
