#pragma once

#include <string>
#include <vector>

namespace troop {

// `troop env …`: environments of one's own (docs/environments.md). Each returns the exit code.
struct EnvCommandOptions {
  std::string id;      // check, bench: or a config file (*.toml)
  std::string plugin;  // list, check, bench: a shared library
  std::vector<std::string> overrides;
  bool quick = false;
  std::string name, language = "c++";  // new
  int envs = 8;                        // bench
  double seconds = 2;
};
int ListEnvironments(const EnvCommandOptions& options);
int NewEnvironment(const EnvCommandOptions& options);
int TryEnvironment(const EnvCommandOptions& options);
int BenchEnvironment(const EnvCommandOptions& options);

}  // namespace troop
