#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace troop {

// What to say of a command line that `app` has refused with `what`: for a mistyped command or flag
// the nearest one, for a key of the config that was given as a flag how keys are set
// ("--seed 3": seed=3), else `what`. words: with the program's name first.
std::string ExplainUsageError(const CLI::App& app, const std::vector<std::string>& words,
                              std::string what);

// Puts the commands into the groups under which `troop --help` lists them.
void GroupCommands(CLI::App* app);

}  // namespace troop
