#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/simd/cpu_features.h"

namespace troop {

// Key of the dropout mask of one sample in one step: the Philox key and stream of an Rng (16 bytes;
// keys are sent as a u32 tensor [B, 4]).
struct DropoutKey {
  std::uint32_t key[2] = {};
  std::uint32_t stream[2] = {};
  bool operator==(const DropoutKey&) const = default;
};
// Makes the key from a sample's index in its data set, not from its position in a batch. Every
// learner therefore drops the same elements of a sample, in any batch. `seed` is the run's.
DropoutKey MakeDropoutKey(std::uint64_t seed, std::uint64_t sample, std::uint64_t step);

// One dropout layer (`site`) of a network, for one sample. Elements are numbered row after row,
// head after head.
struct DropoutSite {
  DropoutKey key;
  std::uint32_t site = 0;
};

// factor[i] = 0 or 1 / keep for element first + i; forward and backward multiply by it. keep is 1 -
// rate rounded to 1/65536, so the expected factor is exactly 1. All levels give the same bits. The
// mask is not stored: backward generates it again. REQUIRES: 0 <= rate < 1; first + n <= 2^35.
// O(n), one Philox block per 8 elements.
void DropoutFactors(const DropoutSite& site, float rate, std::int64_t first, std::int64_t n,
                    float* factor);

// Number of elements kept of 65536. REQUIRES: 0 <= rate < 1.
inline std::uint32_t DropoutKept(float rate) {
  return std::max(1u, std::uint32_t(std::lround((1 - double(rate)) * 65536)));
}

// The implementation of one level, for tests.
using DropoutFunction = void (*)(const DropoutSite&, std::uint32_t kept, std::int64_t first,
                                 std::int64_t n, float* factor);
DropoutFunction DropoutFor(CpuLevel level);

}  // namespace troop
