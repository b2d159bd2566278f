#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/config/enum_names.h"

namespace troop {

// Losses of a linear model's output z for a target y, with scikit-learn's names:
//   kLog           ln(1 + exp(-y z)), y = ±1
//   kSquaredHinge  max(0, 1 - y z)², y = ±1
//   kSquaredError  (z - y)² / 2, y any number
enum class LinearLoss : std::uint8_t { kLog, kSquaredHinge, kSquaredError };
constexpr auto EnumNames(LinearLoss) {
  return std::to_array<std::string_view>({"log_loss", "squared_hinge", "squared_error"});
}

// The loss; never overflows for finite z.
double LossOf(LinearLoss loss, double z, double y);
// Its derivative by z.
double LossSlope(LinearLoss loss, double z, double y);

}  // namespace troop
