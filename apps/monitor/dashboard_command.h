#pragma once

#include "apps/command_line.h"

namespace troop {

// Adds `troop dashboard` to `app`: a dashboard of several runs. A single run can also serve its own
// (fleet.dashboard).
void RegisterDashboard(CLI::App& app, ChosenCommand* chosen);

}  // namespace troop
