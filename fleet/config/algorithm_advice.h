#pragma once

#include <string>

#include "fleet/config/config.h"

namespace troop {

// Advice for a config that is valid but rarely meant, since it has the defaults of another
// algorithm: dpg, td3 or sac with the target networks of dqn (learner.target_update_every_updates
// and learner.target_tau), vtrace or ppo with pqn's learner.lambda. One line; empty if there is
// nothing to advise. A config with one of the keys changed gets none.
std::string AlgorithmAdvice(const Config& config);

}  // namespace troop
