#pragma once

#include <cstdint>
#include <span>

#include "core/base/status.h"
#include "core/tensor/spec.h"

namespace troop {

// Checks of actions that come from outside (Python), since environments abort on a wrong one.

// Copies discrete actions to `to`. O(N). Errors: kInvalidArgument: one is outside [0, count); the
// message has its index, its value and the range, and `to` is then partly written.
// REQUIRES: to.size() == from.size().
Status CopyDiscreteActions(std::span<const std::int64_t> from, std::int64_t count,
                           std::span<std::int32_t> to);
Status CopyDiscreteActions(std::span<const std::int32_t> from, std::int64_t count,
                           std::span<std::int32_t> to);
// Copies continuous actions [N, size] to `to`. O(N size). Errors: kInvalidArgument: an element is
// not a number or outside its bounds. REQUIRES: to.size() == from.size(), a multiple of the size.
Status CopyContinuousActions(std::span<const float> from, const ActionSpec& spec,
                             std::span<float> to);

}  // namespace troop
