#pragma once

#include <string>
#include <vector>

namespace troop {

// `troop env …`: environments of one's own (docs/environments.md). Each returns the exit code.
struct EnvCommandOptions {
  std::string id;      // check: or a config file (*.toml)
  std::string plugin;  // list, check: a shared library
  std::vector<std::string> overrides;
  bool quick = false;
  std::string name, language = "c++";  // new
};
int ListEnvironments(const EnvCommandOptions& options);
int NewEnvironment(const EnvCommandOptions& options);
int TryEnvironment(const EnvCommandOptions& options);

}  // namespace troop
