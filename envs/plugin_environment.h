#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "envs/environment.h"
#include "envs/plugin/troop_env.h"

namespace troop {

// Environments of shared libraries (envs/plugin/troop_env.h), in this process: a crash in them is a
// crash here. The library stays loaded until the process ends. A step or reset that fails sets
// fault(); nothing else is asked of a handle then but a reset.
//
// Errors: kNotFound where there is no such file, or no such id in it; kInvalidArgument for a file
// that is no plug-in, another version of the interface, an option that it refuses, or a spec that
// can't be held: nothing was allocated for it. Each names `path`. Blocks: the library's own start.
Result<std::unique_ptr<Environment>> LoadPluginEnvironment(const std::string& path,
                                                           std::string_view id,
                                                           const EnvOptions& options);
// The ids in a library. Errors: as above.
Result<std::vector<std::string>> PluginEnvironmentIds(const std::string& path);

// The parts of the above, for tables that are not in a file. `name`: what messages call it.
Status CheckPluginApi(const TroopEnvApi* api, const std::string& name);
Result<std::unique_ptr<Environment>> MakePluginEnvironment(const TroopEnvApi* api,
                                                           const std::string& name,
                                                           std::string_view id,
                                                           const EnvOptions& options);

}  // namespace troop
