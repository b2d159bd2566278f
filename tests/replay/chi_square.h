#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace troop {

// The critical value of χ² with `degrees` degrees of freedom at a false-alarm rate of 1e-6
// (Wilson & Hilferty 1931; z = 4.753).
inline double ChiSquareLimit(double degrees) {
  const double a = 2.0 / (9.0 * degrees);
  return degrees * std::pow(1 - a + 4.753 * std::sqrt(a), 3);
}

struct ChiSquare {
  double statistic = 0;
  double limit = 0;
  bool ok() const { return statistic <= limit; }
};

// Counts against expected shares (which sum to 1). A share of 0 must not be hit at all.
inline ChiSquare TestCounts(const std::vector<std::int64_t>& counts,
                            const std::vector<double>& share) {
  double total = 0;
  for (const std::int64_t count : counts) total += double(count);
  ChiSquare result;
  double cells = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (share[i] == 0) {
      if (counts[i] > 0) result.statistic = INFINITY;
      continue;
    }
    const double expected = share[i] * total, difference = double(counts[i]) - expected;
    result.statistic += difference * difference / expected;
    cells += 1;
  }
  result.limit = ChiSquareLimit(std::max(1.0, cells - 1));
  return result;
}

}  // namespace troop
