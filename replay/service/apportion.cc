// Systematic sampling of shares (Madow 1949).
#include "replay/service/apportion.h"

#include <algorithm>
#include <cmath>

#include "core/base/check.h"

namespace troop {

void Apportion(std::span<const double> share, std::int64_t n, double u,
               std::span<std::int64_t> out) {
  double sum = 0;
  std::size_t last = 0;
  for (std::size_t k = 0; k < share.size(); ++k) {
    sum += share[k];
    if (share[k] > 0) last = k;
  }
  TROOP_CHECK(sum > 0 && out.size() == share.size(), "shares add up to {}", sum);
  std::int64_t given = 0;
  double upto = 0;
  for (std::size_t k = 0; k < share.size(); ++k) {
    upto += share[k];
    // The last share ends at n exactly: rounding must not lose a unit.
    const double exact = std::floor(double(n) * (upto / sum) + u);
    const std::int64_t until =
        k >= last ? n : std::clamp<std::int64_t>(std::int64_t(exact), given, n);
    out[k] = share[k] > 0 ? until - given : 0;
    given += out[k];
  }
}

}  // namespace troop
