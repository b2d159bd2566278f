#pragma once

#include <memory>

#include "actors/policy.h"

namespace troop {

// MakeLocalPolicy with the forward on a GPU: equal keys and weights give equal actions, but where
// q-values differ by no more than their rounding. Discrete actions alone. Errors: kUnavailable: no
// GPU can be used, with the reason; this program was built without CUDA. kInvalidArgument: what the
// config asks for can only be computed on the CPU, with its key.
Result<std::unique_ptr<Policy>> MakeDevicePolicy(const Config& config, const EnvSpec& env,
                                                 int size);

}  // namespace troop
