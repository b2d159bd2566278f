#pragma once

#include <cstddef>

#include "core/tensor/spec.h"
#include "replay/codec/sample_batch.h"

namespace troop {

// Checks that a batch of transitions fits `env` and that its size is `priorities`: shapes, types,
// lengths, and valid discrete actions. env.observation: as the network's input. Errors:
// kInvalidArgument: names what does not fit. O(B).
Status CheckTransitions(const SampleBatch& batch, const EnvSpec& env, std::size_t priorities);

}  // namespace troop
