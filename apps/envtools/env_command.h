#pragma once

#include <string>
#include <vector>

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

}  // namespace troop
