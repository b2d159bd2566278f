#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/config/enum_names.h"

namespace troop {

// Form of the value estimate of a network.
enum class CriticKind : std::uint8_t {
  kScalar,       // the mean
  kCategorical,  // C51 (Bellemare et al. 2017)
  kQuantile,     // QR-DQN (Dabney et al. 2018)
};
constexpr auto EnumNames(CriticKind) {
  return std::to_array<std::string_view>({"scalar", "categorical", "quantile"});
}

}  // namespace troop
