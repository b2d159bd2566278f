#pragma once

#include <cstddef>

#include "core/spec.h"
#include "replay/sample.h"

namespace troop {

// Whether a batch of transitions is one of `env`, with room for `priorities` of them: shapes,
// types, lengths, and discrete actions that there are. env.observation: as the network takes it.
// Errors: kInvalidArgument that names what doesn't fit. O(B).
Status CheckTransitions(const SampleBatch& batch, const EnvSpec& env, std::size_t priorities);

}  // namespace troop
