#pragma once

#include <memory>

#include "actors/policy.h"

namespace troop {

// Creates a policy as MakeLocalPolicy does, with the forward pass on the first GPU. Discrete
// actions only. size: largest number of observations per Submit. For equal keys and weights its
// actions equal those of the local policy, except where q-values differ by less than their rounding
// error. Errors: kUnavailable: no GPU can be used, or this program was built without CUDA;
// kInvalidArgument: a config key, named in the message, requires the CPU.
Result<std::unique_ptr<Policy>> MakeGpuPolicy(const ActingConfig& config, const EnvSpec& env,
                                              int size);

}  // namespace troop
