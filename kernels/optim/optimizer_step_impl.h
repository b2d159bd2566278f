#pragma once

#include "kernels/optim/optimizer_step.h"
#include "kernels/simd/vec.h"

// Loops of optimizer.h, compiled once per instruction set; see kernels/simd/vec.h. Each optimizer
// has three parts: its constants in registers, the update of one register of elements (…Lanes), and
// the loop, which runs over whole registers and then over the rest with masked loads.
namespace troop {
namespace {

// Adam and RAdam. The names follow AdamStep.
struct AdamConstants {
  explicit AdamConstants(const AdamStep& s)
      : scale(Set(s.gradient_scale)),
        beta1(Set(s.beta1)),
        rest1(Set(s.one_minus_beta1)),
        beta2(Set(s.beta2)),
        rest2(Set(s.one_minus_beta2)),
        step_size(Set(s.step_size)),
        root_scale(Set(s.root_scale)),
        epsilon(Set(s.epsilon)),
        decay(Set(s.decay_factor)) {}
  Vec scale, beta1, rest1, beta2, rest2, step_size, root_scale, epsilon, decay;
};

// Decoupled weight decay: the old value is scaled, then the Adam step is subtracted.
inline void AdamLanes(const AdamConstants& c, Vec gradient, Vec& m, Vec& v, Vec& value) {
  const Vec g = gradient * c.scale;
  m = c.beta1 * m + c.rest1 * g;
  // The order of operations is fixed: GPU kernels repeat it to get the same bits.
  v = c.beta2 * v + c.rest2 * (g * g);
  value = c.decay * value - c.step_size * (m / (Sqrt(v) * c.root_scale + c.epsilon));
}

// One Adam step. The constants are broadcast once, outside of the loop.
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

// RMSProp. value_decay: weight decay; decay: of the moving averages.
struct RmsPropConstants {
  explicit RmsPropConstants(const RmsPropStep& s)
      : scale(Set(s.gradient_scale)),
        decay(Set(s.decay)),
        rest(Set(s.one_minus_decay)),
        rate(Set(s.learning_rate)),
        epsilon(Set(s.epsilon)),
        value_decay(Set(s.decay_factor)) {}
  Vec scale, decay, rest, rate, epsilon, value_decay;
};

// m is untouched unless kCentered.
template <bool kCentered>
inline void RmsPropLanes(const RmsPropConstants& c, Vec gradient, Vec& m, Vec& v, Vec& value) {
  const Vec g = gradient * c.scale;
  v = c.decay * v + c.rest * (g * g);
  // Not centered: m = 0, so the variance is the second moment.
  Vec variance = v;
  if constexpr (kCentered) {
    m = c.decay * m + c.rest * g;
    // Max returns its second argument if one is NaN, so NaN reaches the value.
    variance = Max(Set(0), v - m * m);
  }
  value = c.value_decay * value - c.rate * (g / Sqrt(variance + c.epsilon));
}

// m may be nullptr unless kCentered.
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

// One RMSProp step; m selects the centered form.
inline void RmsProp(const RmsPropStep& step, std::int64_t n, const float* gradient, float* m,
                    float* v, float* value) {
  if (m != nullptr) return RmsPropLoop<true>(step, n, gradient, m, v, value);
  RmsPropLoop<false>(step, n, gradient, m, v, value);
}

// SGD.
struct SgdConstants {
  explicit SgdConstants(const SgdStep& s)
      : scale(Set(s.gradient_scale)),
        momentum(Set(s.momentum)),
        rate(Set(s.learning_rate)),
        decay(Set(s.weight_decay)) {}
  Vec scale, momentum, rate, decay;
};

// m is untouched unless kMomentum.
template <bool kMomentum>
inline void SgdLanes(const SgdConstants& c, Vec gradient, Vec& m, Vec& value) {
  Vec g = gradient * c.scale + c.decay * value;
  if constexpr (kMomentum) {
    m = c.momentum * m + g;
    g = m;
  }
  value = value - c.rate * g;
}

// m may be nullptr unless kMomentum.
template <bool kMomentum>
void SgdLoop(const SgdStep& step, std::int64_t n, const float* gradient, float* m, float* value) {
  const SgdConstants c(step);
  std::int64_t i = 0;
  for (; i + Vec::kLanes <= n; i += Vec::kLanes) {
    Vec mi = kMomentum ? Load(m + i) : Set(0), xi = Load(value + i);
    SgdLanes<kMomentum>(c, Load(gradient + i), mi, xi);
    if constexpr (kMomentum) Store(m + i, mi);
    Store(value + i, xi);
  }
  if (const std::int64_t rest = n - i; rest > 0) {
    Vec mi = kMomentum ? LoadN(m + i, rest) : Set(0), xi = LoadN(value + i, rest);
    SgdLanes<kMomentum>(c, LoadN(gradient + i, rest), mi, xi);
    if constexpr (kMomentum) StoreN(m + i, mi, rest);
    StoreN(value + i, xi, rest);
  }
}

// One SGD step; m selects momentum.
inline void Sgd(const SgdStep& step, std::int64_t n, const float* gradient, float* m,
                float* value) {
  if (m != nullptr) return SgdLoop<true>(step, n, gradient, m, value);
  SgdLoop<false>(step, n, gradient, m, value);
}

// AdaGrad.
struct AdaGradConstants {
  explicit AdaGradConstants(const AdaGradStep& s)
      : scale(Set(s.gradient_scale)), rate(Set(s.learning_rate)), epsilon(Set(s.epsilon)) {}
  Vec scale, rate, epsilon;
};

// v accumulates all squared gradients.
inline void AdaGradLanes(const AdaGradConstants& c, Vec gradient, Vec& v, Vec& value) {
  const Vec g = gradient * c.scale;
  v = v + g * g;
  value = value - c.rate * (g / (Sqrt(v) + c.epsilon));
}

// One AdaGrad step.
inline void AdaGrad(const AdaGradStep& step, std::int64_t n, const float* gradient, float* v,
                    float* value) {
  const AdaGradConstants c(step);
  std::int64_t i = 0;
  for (; i + Vec::kLanes <= n; i += Vec::kLanes) {
    Vec vi = Load(v + i), xi = Load(value + i);
    AdaGradLanes(c, Load(gradient + i), vi, xi);
    Store(v + i, vi), Store(value + i, xi);
  }
  if (const std::int64_t rest = n - i; rest > 0) {
    Vec vi = LoadN(v + i, rest), xi = LoadN(value + i, rest);
    AdaGradLanes(c, LoadN(gradient + i, rest), vi, xi);
    StoreN(v + i, vi, rest), StoreN(value + i, xi, rest);
  }
}

// Multiplication and addition round separately: a fused one would differ between levels.
inline void AddScaled(std::int64_t n, float weight, const float* x, float* sum) {
  const Vec w = Set(weight);
  std::int64_t i = 0;
  for (; i + Vec::kLanes <= n; i += Vec::kLanes) Store(sum + i, Load(sum + i) + w * Load(x + i));
  if (const std::int64_t rest = n - i; rest > 0) {
    StoreN(sum + i, LoadN(sum + i, rest) + w * LoadN(x + i, rest), rest);
  }
}

// Partial sum j takes the elements i with i mod 32 == j; then pairs of neighbors are added. The
// order is the same for all register widths.
inline double SumSquares(std::int64_t n, const float* x) {
  // Kept in 4 (AVX-512), 8 (AVX2) or 16 registers of f64.
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
  // The rest of the elements continues at partial sum 0.
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

namespace TROOP_ISA {
extern const OptimizerKernels kOptimizerKernels;
const OptimizerKernels kOptimizerKernels = {Adam, RmsProp, Sgd, AdaGrad, AddScaled, SumSquares};
}  // namespace TROOP_ISA

}  // namespace troop
