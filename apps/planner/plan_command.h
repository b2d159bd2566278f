#pragma once

#include "apps/command_line.h"

namespace troop {

// Adds `troop plan` to `app`.
void RegisterPlan(CLI::App& app, ChosenCommand* chosen);

}  // namespace troop
