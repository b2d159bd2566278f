#pragma once

#include <cstdint>

namespace troop {

// What follows a layer's sum. Its derivative is had from its result: relu' = [y > 0], tanh' = 1 -
// y².
enum class Activation : std::uint8_t { kNone = 0, kRelu = 1, kTanh = 2 };

}  // namespace troop
