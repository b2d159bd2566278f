#pragma once

#include "kernels/simd/vec.h"

// Loops over a row and reductions of a register. In an unnamed namespace for the reason given in
// kernels/simd/vec.h.
namespace troop {
namespace {

// Sum of a register's lanes, by halving; and the largest lane.
inline float SumLanes(Vec v) {
  float lane[Vec::kLanes];
  Store(lane, v);
  for (int width = Vec::kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lane[i] += lane[i + width];
  }
  return lane[0];
}
// The largest lane; NaN is skipped unless it is in lane 0.
inline float MaxLane(Vec v) {
  float lane[Vec::kLanes];
  Store(lane, v);
  for (int i = 1; i < Vec::kLanes; ++i) lane[0] = lane[i] > lane[0] ? lane[i] : lane[0];
  return lane[0];
}
inline Vec Zeros() { return Set(0); }

// Calls f(first index, load, store) for each whole register of [0, n), then once for the rest with
// masked accesses. f must compile with both kinds of load and store.
template <class F>
inline void ForEachVec(std::int64_t n, F f) {
  std::int64_t i = 0;
  for (; i + Vec::kLanes <= n; i += Vec::kLanes) {
    f(
        i, [](const float* p) { return Load(p); }, [](float* p, Vec v) { Store(p, v); });
  }
  if (const std::int64_t rest = n - i; rest > 0) {
    f(
        i, [rest](const float* p) { return LoadN(p, rest); },
        [rest](float* p, Vec v) { StoreN(p, v, rest); });
  }
}

}  // namespace
}  // namespace troop
