#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/config/enum_names.h"

namespace troop {

// Activation function applied to a layer's sum. Its derivative follows from its result y:
// relu' = [y > 0], tanh' = 1 - y².
enum class Activation : std::uint8_t { kNone = 0, kRelu = 1, kTanh = 2 };
constexpr auto EnumNames(Activation) {
  return std::to_array<std::string_view>({"none", "relu", "tanh"});
}

}  // namespace troop
