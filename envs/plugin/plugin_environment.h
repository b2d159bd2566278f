#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "envs/environment.h"
#include "envs/plugin/troop_env.h"

namespace troop {

// Creates an environment of a shared library (envs/plugin/troop_env.h) in this process, so a crash
// in the library crashes the process. The library stays loaded until the process ends. A step or
// reset that fails sets fault(); after that the handle only receives a reset.
//
// Errors: kNotFound if there is no such file, or no such id in it; kInvalidArgument for a file that
// is not a plug-in, an incompatible interface version, an option that the environment rejects, or a
// spec beyond the limits, before anything is allocated for it. Each error names `path`. Blocks
// while the library loads.
Result<std::unique_ptr<Environment>> LoadPluginEnvironment(const std::string& path,
                                                           std::string_view id,
                                                           const EnvOptions& options);
// Ids of the environments in a library. Errors: as above.
Result<std::vector<std::string>> PluginEnvironmentIds(const std::string& path);

// Parts of the functions above, for tables that are not loaded from a file. `name` identifies the
// table in messages.
Status CheckPluginApi(const TroopEnvApi* api, const std::string& name);
Result<std::unique_ptr<Environment>> MakePluginEnvironment(const TroopEnvApi* api,
                                                           const std::string& name,
                                                           std::string_view id,
                                                           const EnvOptions& options);

}  // namespace troop
