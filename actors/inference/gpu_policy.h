#pragma once

#include <memory>

#include "actors/policy.h"

namespace troop {

// MakeLocalPolicy with the forward pass on a GPU: equal keys and weights give equal actions, except
// where q-values differ by less than their rounding error. Discrete actions only. Errors:
// kUnavailable: no GPU can be used, with the reason; this program was built without CUDA.
// kInvalidArgument: the config needs the CPU, with the config key.
Result<std::unique_ptr<Policy>> MakeGpuPolicy(const Config& config, const EnvSpec& env, int size);

}  // namespace troop
