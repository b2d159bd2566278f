#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/simd/cpu_features.h"

namespace troop {

// Names the random numbers of one sample in one step: the Philox key and stream of an Rng (16
// bytes, so that keys travel as a tensor [B, 4] u32).
struct DropoutKey {
  std::uint32_t key[2] = {};
  std::uint32_t stream[2] = {};
  bool operator==(const DropoutKey&) const = default;
};
// Of a sample's index in its data set, never of its place in a batch: whoever computes it, and
// beside which others, drops the same. `seed` is the run's.
DropoutKey MakeDropoutKey(std::uint64_t seed, std::uint64_t sample, std::uint64_t step);

// One place in a network where elements are dropped, for one sample. Elements are counted through
// whatever lies there: row after row, head after head.
struct DropoutSite {
  DropoutKey key;
  std::uint32_t site = 0;
};

// factor[i] = 0, or 1 / keep, for the elements first + i: what forward and backward multiply by.
// keep = 1 - rate to 1/65536, so the expected factor is exactly 1. All levels give the same bits.
// Nothing is stored: backward makes the factors again. REQUIRES: 0 <= rate < 1; first + n <= 2^35.
// O(n), 8 elements for each Philox block.
void DropoutFactors(const DropoutSite& site, float rate, std::int64_t first, std::int64_t n,
                    float* factor);

// The same as a number: elements kept of 65536. REQUIRES: 0 <= rate < 1.
inline std::uint32_t DropoutKept(float rate) {
  return std::max(1u, std::uint32_t(std::lround((1 - double(rate)) * 65536)));
}

// One instruction set's version, for tests.
using DropoutFunction = void (*)(const DropoutSite&, std::uint32_t kept, std::int64_t first,
                                 std::int64_t n, float* factor);
DropoutFunction DropoutFor(CpuLevel level);

}  // namespace troop
