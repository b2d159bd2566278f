#pragma once

#include <string>

namespace troop {

// Arguments of `troop config`. Precedence: markdown, check, then the list of keys.
struct ConfigArguments {
  std::string key;        // describe only this key; empty: all
  std::string check;      // file to parse and print as a resolved config
  bool markdown = false;  // print docs/reference/config.md
  bool keys = false;      // print only names
};
// `troop config`: describes the config keys. Returns the exit code.
int RunConfig(const ConfigArguments& arguments);
// The footer of `troop config --help`: all keys with their descriptions.
std::string ConfigHelp();

// Arguments of `troop config migrate`.
struct MigrateArguments {
  std::string file;
  bool dry_run = false;  // print the changes, write nothing
};
// `troop config migrate`: rewrites a config file of an older version in place, atomically, and
// prints each renamed key. A file that the current version does not accept afterwards is left
// unchanged, with the reason as an error. Returns the exit code.
int RunMigrate(const MigrateArguments& arguments);

}  // namespace troop
