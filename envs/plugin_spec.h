#pragma once

#include <string_view>

#include "core/spec.h"
#include "core/status.h"
#include "envs/plugin/troop_env.h"

namespace troop {

// What a plug-in says of an environment, as an EnvSpec. Errors: kInvalidArgument for what is out of
// the bounds of envs/plugin_environment.h; what was said is looked at before anything is allocated.
Result<EnvSpec> SpecOfPlugin(std::string_view id, const TroopEnvSpec& said);

}  // namespace troop
