#pragma once

#include "apps/command_line.h"

namespace troop {

// Adds `troop sweep` to `app`.
void RegisterSweep(CLI::App& app, ChosenCommand* chosen);

}  // namespace troop
