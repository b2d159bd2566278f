#pragma once

#include <cstdint>

namespace troop {

// Activation function applied to a layer's sum. Its derivative follows from its result y:
// relu' = [y > 0], tanh' = 1 - y².
enum class Activation : std::uint8_t { kNone = 0, kRelu = 1, kTanh = 2 };

}  // namespace troop
