#pragma once

#include <string>

#include "apps/command_line.h"

namespace troop {

// Arguments of `troop config`. `markdown` takes precedence over `check`, and both over the list of
// keys.
struct ConfigArguments {
  std::string key;        // the only key to describe; empty: all keys
  std::string check;      // file to parse and print as a resolved config
  bool markdown = false;  // true if docs/reference/config.md is printed
  bool keys = false;      // true if only the names of keys are printed
};
// `troop config`: describes the config keys. Returns the exit code.
int RunConfig(const ConfigArguments& arguments);
// The footer of `troop config --help`: all keys with their descriptions.
std::string ConfigHelp();

// Arguments of `troop config migrate`.
struct MigrateArguments {
  std::string file;      // config file to rewrite
  bool dry_run = false;  // true if the changes are only printed
};
// `troop config migrate`: rewrites a config file of an older version in place, atomically, and
// prints each renamed key. If the result is not a valid config, prints the reason as an error and
// leaves the file unchanged. Returns the exit code.
int RunMigrate(const MigrateArguments& arguments);

// Adds `troop config` and `troop config migrate` to `app`.
void RegisterConfig(CLI::App& app, ChosenCommand* chosen);

}  // namespace troop
