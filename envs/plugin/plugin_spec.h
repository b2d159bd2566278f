#pragma once

#include <string_view>

#include "core/base/status.h"
#include "core/tensor/spec.h"
#include "envs/plugin/troop_env.h"

namespace troop {

// Converts the spec of a plug-in to an EnvSpec. Errors: kInvalidArgument for values beyond the
// limits of envs/plugin/plugin_environment.h; all values are checked before anything is allocated.
Result<EnvSpec> SpecOfPlugin(std::string_view id, const TroopEnvSpec& said);

}  // namespace troop
