#pragma once

#include "kernels/optimizer.h"
#include "kernels/vec.h"

// Compiled once per instruction set; see kernels/vec.h.
namespace troop {
namespace {

struct AdamConstants {
  explicit AdamConstants(const AdamStep& s)
      : scale(Set(s.gradient_scale)), beta1(Set(s.beta1)), rest1(Set(s.one_minus_beta1)),
        beta2(Set(s.beta2)), rest2(Set(s.one_minus_beta2)), step_size(Set(s.step_size)),
        root_scale(Set(s.root_scale)), epsilon(Set(s.epsilon)), decay(Set(s.decay_factor)) {}
  Vec scale, beta1, rest1, beta2, rest2, step_size, root_scale, epsilon, decay;
};

inline void AdamLanes(const AdamConstants& c, Vec gradient, Vec& m, Vec& v, Vec& value) {
  const Vec g = gradient * c.scale;
  m = c.beta1 * m + c.rest1 * g;
  v = c.beta2 * v + c.rest2 * (g * g);
  value = c.decay * value - c.step_size * (m / (Sqrt(v) * c.root_scale + c.epsilon));
}

inline void Adam(const AdamStep& step, std::int64_t n, const float* gradient, float* m, float* v,
                 float* value) {
  const AdamConstants c(step);
  std::int64_t i = 0;
  for (; i + Vec::kLanes <= n; i += Vec::kLanes) {
    Vec mi = Load(m + i), vi = Load(v + i), xi = Load(value + i);
    AdamLanes(c, Load(gradient + i), mi, vi, xi);
    Store(m + i, mi), Store(v + i, vi), Store(value + i, xi);
  }
  if (const std::int64_t rest = n - i; rest > 0) {
    Vec mi = LoadN(m + i, rest), vi = LoadN(v + i, rest), xi = LoadN(value + i, rest);
    AdamLanes(c, LoadN(gradient + i, rest), mi, vi, xi);
    StoreN(m + i, mi, rest), StoreN(v + i, vi, rest), StoreN(value + i, xi, rest);
  }
}

struct RmsPropConstants {
  explicit RmsPropConstants(const RmsPropStep& s)
      : scale(Set(s.gradient_scale)), decay(Set(s.decay)), rest(Set(s.one_minus_decay)),
        rate(Set(s.learning_rate)), epsilon(Set(s.epsilon)), value_decay(Set(s.decay_factor)) {}
  Vec scale, decay, rest, rate, epsilon, value_decay;
};

template <bool kCentered>
inline void RmsPropLanes(const RmsPropConstants& c, Vec gradient, Vec& m, Vec& v, Vec& value) {
  const Vec g = gradient * c.scale;
  v = c.decay * v + c.rest * (g * g);
  Vec variance = v;
  if constexpr (kCentered) {
    m = c.decay * m + c.rest * g;
    variance = Max(Set(0), v - m * m);
  }
  value = c.value_decay * value - c.rate * (g / Sqrt(variance + c.epsilon));
}

template <bool kCentered>
void RmsPropLoop(const RmsPropStep& step, std::int64_t n, const float* gradient, float* m, float* v,
                 float* value) {
  const RmsPropConstants c(step);
  std::int64_t i = 0;
  for (; i + Vec::kLanes <= n; i += Vec::kLanes) {
    Vec mi = kCentered ? Load(m + i) : Set(0), vi = Load(v + i), xi = Load(value + i);
    RmsPropLanes<kCentered>(c, Load(gradient + i), mi, vi, xi);
    if constexpr (kCentered) Store(m + i, mi);
    Store(v + i, vi), Store(value + i, xi);
  }
  if (const std::int64_t rest = n - i; rest > 0) {
    Vec mi = kCentered ? LoadN(m + i, rest) : Set(0), vi = LoadN(v + i, rest);
    Vec xi = LoadN(value + i, rest);
    RmsPropLanes<kCentered>(c, LoadN(gradient + i, rest), mi, vi, xi);
    if constexpr (kCentered) StoreN(m + i, mi, rest);
    StoreN(v + i, vi, rest), StoreN(value + i, xi, rest);
  }
}

inline void RmsProp(const RmsPropStep& step, std::int64_t n, const float* gradient, float* m,
                    float* v, float* value) {
  if (m != nullptr) return RmsPropLoop<true>(step, n, gradient, m, v, value);
  RmsPropLoop<false>(step, n, gradient, m, v, value);
}

// Running sum j takes the elements i with i mod 32 == j; then neighbours are added in pairs.
inline double SumSquares(std::int64_t n, const float* x) {
  constexpr int kSums = 32, kRegisters = kSums / VecD::kLanes;
  VecD sum[kRegisters];
#pragma GCC unroll 16
  for (int r = 0; r < kRegisters; ++r) sum[r] = SetD(0);
  std::int64_t i = 0;
  for (; i + kSums <= n; i += kSums) {
#pragma GCC unroll 16
    for (int r = 0; r < kRegisters; ++r) {
      const VecD xi = LoadAsD(x + i + r * VecD::kLanes);
      sum[r] = sum[r] + xi * xi;
    }
  }
  double lane[kSums];
#pragma GCC unroll 16
  for (int r = 0; r < kRegisters; ++r) StoreD(lane + r * VecD::kLanes, sum[r]);
  for (int j = 0; i < n; ++i, ++j) lane[j] += double(x[i]) * double(x[i]);
  for (int width = kSums / 2; width > 0; width /= 2) {
    for (int j = 0; j < width; ++j) lane[j] = lane[2 * j] + lane[2 * j + 1];
  }
  return lane[0];
}

}  // namespace
}  // namespace troop
