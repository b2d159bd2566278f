#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/tensor/spec.h"
#include "replay/codec/sample_batch.h"

namespace troop {

// Checks that a batch of transitions fits `env` and that its size is `priorities`: shapes, types,
// lengths, and valid discrete actions that the action masks allow. env.observation: as the
// network's input. Errors: kInvalidArgument: names what does not fit. O(B).
Status CheckTransitions(const SampleBatch& batch, const EnvSpec& env, std::size_t priorities);

// Checks that a mask allows this action. frames: those of its observation, the newest one last; the
// action is in [0, count). Errors: kInvalidArgument.
Status CheckAllowed(const EnvSpec& env, std::span<const std::byte> frames, std::int32_t action);

}  // namespace troop
