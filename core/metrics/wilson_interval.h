#pragma once

#include <algorithm>
#include <cmath>

namespace troop {

// The 95 % score interval of a proportion, `hits` of `trials` (Wilson 1927). Unlike the standard
// error, its width is positive for proportions of 0 and 1.
struct ConfidenceInterval {
  double low = 0, high = 1;
};
// REQUIRES: 0 <= hits <= trials. Returns [0, 1] without trials.
inline ConfidenceInterval WilsonInterval(double hits, double trials) {
  if (trials <= 0) return {};
  constexpr double kZ = 1.959964;  // quantile for 2.5 % on each side
  const double share = hits / trials, square = kZ * kZ / trials;
  const double middle = (share + square / 2) / (1 + square);
  const double half =
      kZ / (1 + square) * std::sqrt(share * (1 - share) / trials + square / (4 * trials));
  return {hits <= 0 ? 0 : std::max(0.0, middle - half),
          hits >= trials ? 1 : std::min(1.0, middle + half)};
}

}  // namespace troop
