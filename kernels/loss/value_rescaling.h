#pragma once

#include <cmath>

namespace troop {

// Rescaling of action values, so that large returns need no clipped rewards (Pohlen et al. 2018,
// proposition A.2; ε as in Kapturowski et al. 2019):
//   h(x) = sign(x) (√(|x| + 1) - 1) + ε x
// Strictly increasing, so the greedy action stays the same. NaN stays NaN.
inline constexpr double kRescalingSlope = 1e-3;  // ε

inline double RescaleValue(double x) {
  return std::copysign(std::sqrt(std::abs(x) + 1) - 1, x) + kRescalingSlope * x;
}

// h⁻¹. The closed form would subtract numbers of almost the same size; with y = |x| and
// s = √(1 + 4 ε (y + 1 + ε)), ((s - 1) / 2ε)² - 1 = 2 (y + 1 + ε) / (s + 1) squared, minus 1.
inline double UnrescaleValue(double x) {
  const double y = std::abs(x) + 1 + kRescalingSlope;
  const double root = 2 * y / (std::sqrt(1 + 4 * kRescalingSlope * y) + 1);
  return std::copysign(root * root - 1, x);
}

}  // namespace troop
