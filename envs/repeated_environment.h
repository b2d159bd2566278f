#pragma once

#include <memory>

#include "envs/environment.h"

namespace troop {

// Each action is held for `repeat` steps of `inner`, or until the episode ends: rewards add up, the
// last observation counts. Limits of steps are those of actions. REQUIRES: repeat >= 1.
std::unique_ptr<Environment> MakeRepeatedEnvironment(std::unique_ptr<Environment> inner,
                                                     int repeat);

}  // namespace troop
