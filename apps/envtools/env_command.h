#pragma once

#include <string>
#include <vector>

#include "apps/command_line.h"

namespace troop {

// Options of `troop env …`: the user's own environments (docs/guide/environments.md).
struct EnvCommandOptions {
  std::string id;      // check, bench: an environment id or a config file (*.toml)
  std::string plugin;  // list, check, bench: a shared library
  std::vector<std::string> overrides;
  bool quick = false;
  std::string name, language = "c++";  // new
  int envs = 8;                        // bench
  double seconds = 2;
};
// `troop env list`, `new`, `check` and `bench`. Each returns the exit code.
int ListEnvironments(const EnvCommandOptions& options);
int NewEnvironment(const EnvCommandOptions& options);
int TryEnvironment(const EnvCommandOptions& options);
int BenchEnvironment(const EnvCommandOptions& options);

// Adds the group `troop env` to `app`.
void RegisterEnv(CLI::App& app, ChosenCommand* chosen);
// Adds `troop bench env` to `app`, another name of `troop env bench`.
void RegisterBench(CLI::App& app, ChosenCommand* chosen);
// Adds the internal command `troop env-worker` to `app`, which runs environments for another
// process.
void RegisterEnvWorker(CLI::App& app, ChosenCommand* chosen);

}  // namespace troop
