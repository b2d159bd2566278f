#pragma once

#include "kernels/simd/vec_loops.h"
#include "kernels/simd/vec_math.h"
#include "kernels/transformer/layer_norm_gelu.h"

// Loops of transformer.h, compiled once per instruction set; see kernels/simd/vec.h.
namespace troop {
namespace {

constexpr float kRootHalf = 0.707106781f;        // √½
constexpr float kInverseRootTau = 0.398942280f;  // 1 / √(2π)
constexpr float kTanhScale = 0.797884561f;       // √(2/π)
constexpr float kTanhCubic = 0.044715f;

// gelu(z); the formulas are at GeluForm.
inline Vec GeluOf(GeluForm form, Vec z) {
  const Vec half = Set(0.5f) * z;
  if (form == GeluForm::kErf) return half + half * Erf(z * Set(kRootHalf));
  return half + half * Tanh(Set(kTanhScale) * (z + Set(kTanhCubic) * (z * z * z)));
}

// gelu'(z) = Φ(z) + z φ(z); for kTanh the derivative of the approximation.
inline Vec GeluSlope(GeluForm form, Vec z) {
  const Vec half = Set(0.5f);
  if (form == GeluForm::kErf) {
    // φ(z) = exp(-z²/2) / √(2π)
    const Vec density = Set(kInverseRootTau) * Exp(Zeros() - half * z * z);
    return half + half * Erf(z * Set(kRootHalf)) + z * density;
  }
  const Vec square = z * z;
  const Vec t = Tanh(Set(kTanhScale) * (z + Set(kTanhCubic) * (square * z)));
  // d/dz of the argument of tanh
  const Vec inner = Set(kTanhScale) * (Set(1) + Set(3 * kTanhCubic) * square);
  return half + half * t + half * z * (Set(1) - t * t) * inner;
}

// y may be z: a register is read before it is written. This holds for all elementwise loops here.
inline void Gelu(GeluForm form, std::int64_t n, const float* z, float* y) {
  ForEachVec(
      n, [=](std::int64_t i, auto load, auto store) { store(y + i, GeluOf(form, load(z + i))); });
}

inline void GeluBackward(GeluForm form, std::int64_t n, const float* z, const float* dy,
                         float* dz) {
  ForEachVec(n, [=](std::int64_t i, auto load, auto store) {
    store(dz + i, load(dy + i) * GeluSlope(form, load(z + i)));
  });
}

// Used for dropout: values times factors.
inline void Multiply(std::int64_t n, const float* a, const float* b, float* y) {
  ForEachVec(
      n, [=](std::int64_t i, auto load, auto store) { store(y + i, load(a + i) * load(b + i)); });
}

// Σ (x - mean)². The rest of a row is scalar: masked lanes would hold 0 - mean.
inline float SumOfSquaredDistances(std::int64_t n, const float* x, float mean) {
  Vec sum = Zeros();
  const Vec m = Set(mean);
  std::int64_t i = 0;
  for (; i + Vec::kLanes <= n; i += Vec::kLanes) {
    const Vec d = Load(x + i) - m;
    sum = MulAdd(d, d, sum);
  }
  float total = SumLanes(sum);
  for (; i < n; ++i) total += (x[i] - mean) * (x[i] - mean);
  return total;
}

// Two passes over a row for mean and variance (no cancellation), a third for y.
inline void LayerNorm(const LayerNormShape& shape, const float* x, const float* gamma,
                      const float* beta, float* y, float* mean, float* rstd) {
  const std::int64_t n = shape.n;
  for (std::int64_t row = 0; row < shape.rows; ++row, x += n, y += n) {
    Vec sum = Zeros();
    // Masked lanes load 0 and do not change the sum.
    ForEachVec(n, [&](std::int64_t i, auto load, auto) { sum = sum + load(x + i); });
    mean[row] = SumLanes(sum) / static_cast<float>(n);
    const float variance = SumOfSquaredDistances(n, x, mean[row]) / static_cast<float>(n);
    rstd[row] = 1 / __builtin_sqrtf(variance + shape.epsilon);
    const Vec m = Set(mean[row]), r = Set(rstd[row]);
    ForEachVec(n, [&](std::int64_t i, auto load, auto store) {
      store(y + i, (load(x + i) - m) * r * load(gamma + i) + load(beta + i));
    });
  }
}

// With h = (x - mean) rstd and g = dy gamma: dx = rstd (g - mean(g) - h mean(g h)). The first pass
// over a row accumulates both means, dgamma and dbeta; the second writes dx, which may be dy.
inline void LayerNormBackward(const LayerNormShape& shape, const float* x, const float* gamma,
                              const float* mean, const float* rstd, const float* dy, float* dx,
                              float* dgamma, float* dbeta) {
  const std::int64_t n = shape.n;
  for (std::int64_t row = 0; row < shape.rows; ++row, x += n, dy += n, dx += n) {
    const Vec m = Set(mean[row]), r = Set(rstd[row]);
    Vec sum = Zeros(), product = Zeros();
    ForEachVec(n, [&](std::int64_t i, auto load, auto store) {
      const Vec h = (load(x + i) - m) * r, d = load(dy + i), g = d * load(gamma + i);
      sum = sum + g;
      product = MulAdd(g, h, product);
      store(dgamma + i, load(dgamma + i) + d * h);
      store(dbeta + i, load(dbeta + i) + d);
    });
    // a = mean(g), b = mean(g h)
    const Vec a = Set(SumLanes(sum) / static_cast<float>(n));
    const Vec b = Set(SumLanes(product) / static_cast<float>(n));
    ForEachVec(n, [&](std::int64_t i, auto load, auto store) {
      const Vec h = (load(x + i) - m) * r, g = load(dy + i) * load(gamma + i);
      store(dx + i, r * (g - a - h * b));
    });
  }
}

// Maximum of a row, for a stable softmax. NaN may be skipped here: the sum of exponentials is NaN
// in any case.
inline float MaxOfRow(std::int64_t n, const float* x) {
  Vec most = Set(x[0]);
  std::int64_t i = 0;
  for (; i + Vec::kLanes <= n; i += Vec::kLanes) most = Max(Load(x + i), most);
  float out = MaxLane(most);
  for (; i < n; ++i) out = x[i] > out ? x[i] : out;
  return out;
}

// y = exp(scale x - shift); returns Σ y. The last register goes through a buffer, since its masked
// lanes must not enter the sum.
inline float ExpRow(std::int64_t n, float scale, float shift, const float* x, float* y) {
  const Vec s = Set(scale), t = Set(shift);
  Vec sum = Zeros();
  std::int64_t i = 0;
  for (; i + Vec::kLanes <= n; i += Vec::kLanes) {
    // Exp clamps at -87, so terms far below the maximum are tiny, not 0.
    const Vec e = Exp(Load(x + i) * s - t);
    Store(y + i, e);
    sum = sum + e;
  }
  float total = SumLanes(sum);
  if (i < n) {
    float last[Vec::kLanes];
    // Only the valid lanes are stored and added.
    Store(last, Exp(LoadN(x + i, n - i) * s - t));
    for (int j = 0; i < n; ++i, ++j) {
      y[i] = last[j];
      total += last[j];
    }
  }
  return total;
}

// Maximum, exponentials and sum, then normalization.
inline void Softmax(std::int64_t rows, std::int64_t n, float scale, float* x, float* lse,
                    std::int64_t stride) {
  for (std::int64_t row = 0; row < rows; ++row, x += n) {
    // REQUIRES: scale > 0, so that this is the largest exponent.
    const float shift = scale * MaxOfRow(n, x);
    const float sum = ExpRow(n, scale, shift, x, x);
    const Vec factor = Set(1 / sum);
    ForEachVec(n,
               [=](std::int64_t i, auto load, auto store) { store(x + i, load(x + i) * factor); });
    lse[row * stride] = shift + __builtin_logf(sum);
  }
}

// exp(scale x - lse) is normalized already.
inline void SoftmaxAgain(std::int64_t rows, std::int64_t n, float scale, const float* lse,
                         std::int64_t stride, float* x) {
  for (std::int64_t row = 0; row < rows; ++row, x += n) {
    const Vec s = Set(scale), t = Set(lse[row * stride]);
    ForEachVec(
        n, [=](std::int64_t i, auto load, auto store) { store(x + i, Exp(load(x + i) * s - t)); });
  }
}

// delta is the inner product of p and dp, which the caller computes from outputs.
inline void SoftmaxBackward(std::int64_t rows, std::int64_t n, float scale, const float* p,
                            const float* dp, const float* delta, float* dx) {
  for (std::int64_t row = 0; row < rows; ++row, p += n, dp += n, dx += n) {
    const Vec s = Set(scale), d = Set(delta[row]);
    ForEachVec(n, [=](std::int64_t i, auto load, auto store) {
      store(dx + i, s * load(p + i) * (load(dp + i) - d));
    });
  }
}

// Σ exp(x - shift), without storing the terms.
inline float SumOfExp(std::int64_t n, float shift, const float* x) {
  Vec sum = Zeros();
  std::int64_t i = 0;
  for (; i + Vec::kLanes <= n; i += Vec::kLanes) sum = sum + Exp(Load(x + i) - Set(shift));
  float total = SumLanes(sum), last[Vec::kLanes];
  if (i < n) Store(last, Exp(LoadN(x + i, n - i) - Set(shift)));
  for (int j = 0; i < n; ++i, ++j) total += last[j];
  return total;
}

// With dx the exponentials are stored there and scaled afterwards; without, they are only summed.
// x[label] is read before dx, which may be x, is written.
inline void CrossEntropy(std::int64_t rows, std::int64_t n, const float* x,
                         const std::int32_t* label, float scale, float* loss, float* dx) {
  for (std::int64_t row = 0; row < rows; ++row, x += n) {
    float* const out = dx != nullptr ? dx + row * n : nullptr;
    loss[row] = 0;
    // No loss, and a zero gradient.
    if (label[row] == kIgnoredLabel) {
      for (std::int64_t i = 0; out != nullptr && i < n; ++i) out[i] = 0;
      continue;
    }
    const float shift = MaxOfRow(n, x), chosen = x[label[row]] - shift;
    const float sum = out != nullptr ? ExpRow(n, 1, shift, x, out) : SumOfExp(n, shift, x);
    loss[row] = __builtin_logf(sum) - chosen;
    if (out == nullptr) continue;
    const Vec factor = Set(scale / sum);
    ForEachVec(
        n, [=](std::int64_t i, auto load, auto store) { store(out + i, load(out + i) * factor); });
    // softmax - one-hot(label), both times scale.
    out[label[row]] -= scale;
  }
}

}  // namespace

namespace TROOP_ISA {
extern const TransformerKernels kTransformerKernels;
const TransformerKernels kTransformerKernels = {
    Gelu,    GeluBackward, Multiply,        LayerNorm,    LayerNormBackward,
    Softmax, SoftmaxAgain, SoftmaxBackward, CrossEntropy,
};
}  // namespace TROOP_ISA

}  // namespace troop
