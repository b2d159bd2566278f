#pragma once

#include "apps/command_line.h"

namespace troop {

// Adds `troop experiment …` to `app`.
void RegisterExperiment(CLI::App& app, ChosenCommand* chosen);

}  // namespace troop
