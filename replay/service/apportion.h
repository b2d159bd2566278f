#pragma once

#include <cstdint>
#include <span>

namespace troop {

// Distributes n units over shards in proportion to `share`, each part rounded up or down so that
// the sum is n: systematic sampling with offset u in [0, 1) (Madow 1949). Over a uniform u the
// mean of out[k] is exactly n * share[k] / Σ share. REQUIRES: shares finite and >= 0, at least one
// positive; n >= 0.
void Apportion(std::span<const double> share, std::int64_t n, double u,
               std::span<std::int64_t> out);

}  // namespace troop
