#pragma once

#include "apps/command_line.h"

namespace troop {

// Adds `troop selftest sync` to `app`.
void RegisterSelftest(CLI::App& app, ChosenCommand* chosen);

}  // namespace troop
