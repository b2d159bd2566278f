#pragma once

#include <string>

#include "core/config.h"
#include "core/spec.h"
#include "core/status.h"

namespace troop {

// What a run learns: its environment, or reviews (ReviewSpec). Errors: as FindEnvSpec.
Result<EnvSpec> ProblemOf(const Config& config);
// For people: "CartPole-v1", or where the reviews are.
std::string ProblemName(const Config& config);
// What the run's steps are: "agent steps" or "reviews".
const char* StepsName(const Config& config);

}  // namespace troop
