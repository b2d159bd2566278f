#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace troop {

// The error message for a command line that `app` rejected with `what`: suggests the nearest
// command or flag, or the key=value form for a config key given as a flag ("--seed 3": seed=3);
// else `what`. words: the arguments, program name first.
std::string ExplainUsageError(const CLI::App& app, const std::vector<std::string>& words,
                              std::string what);

// Assigns the commands to the groups of `troop --help`.
void GroupCommands(CLI::App* app);

}  // namespace troop
