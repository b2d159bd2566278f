#pragma once

#include "apps/command_line.h"
#include "fleet/config/config.h"

namespace troop {

// Adds `troop train` to `app`: it starts a run of a config with the engine of fleet.engine.
void RegisterTrain(CLI::App& app, ChosenCommand* chosen);
// Adds `troop resume` to `app`: it continues a run from its folder, with the engine of its config.
void RegisterResume(CLI::App& app, ChosenCommand* chosen);

// Applies --insecure, and makes the paths of security.keys and fleet.metrics_token absolute: roles
// and later commands may run in other working directories.
void ApplySecurity(bool insecure, Config* config);

}  // namespace troop
