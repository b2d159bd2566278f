#pragma once

#include <memory>

#include "envs/environment.h"

namespace troop {

// Wraps `inner` so that each action is repeated for `repeat` steps, or until the episode ends.
// Rewards are summed and the last observation is returned. Step limits count agent steps, not inner
// steps. REQUIRES: repeat >= 1.
std::unique_ptr<Environment> MakeRepeatedEnvironment(std::unique_ptr<Environment> inner,
                                                     int repeat);

}  // namespace troop
