#pragma once

#include <string>

#include "fleet/config/config.h"

namespace troop {

// Advice for a config that is valid but rarely meant: dpg, td3 or sac with the target networks of
// dqn, which the defaults of learner.target_update_every_updates and learner.target_tau are. One
// line; empty if there is nothing to advise. A config with one of both keys changed gets none.
std::string TargetAdvice(const Config& config);

}  // namespace troop
