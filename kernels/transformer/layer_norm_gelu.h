#pragma once

#include <cstdint>
#include <span>

#include "kernels/simd/cpu_features.h"

namespace troop {

// Form of the Gaussian error linear unit (Hendrycks & Gimpel 2016), x Φ(x): exact (BERT), or with
// Φ(x) ≈ (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2 (ALBERT's `gelu_new`).
enum class GeluForm : std::uint8_t { kErf = 0, kTanh = 1 };

// Shape of a layer norm. Arrays are dense [rows, n]; mean, rstd: [rows]; rstd = 1 / sqrt(variance +
// epsilon).
struct LayerNormShape {
  std::int64_t rows = 0, n = 0;
  float epsilon = 1e-12f;
};

// Label of a token without a loss, as in PyTorch.
inline constexpr std::int32_t kIgnoredLabel = -100;

// Function table of the elementwise and row-wise operations of a transformer. Sums over a row have
// one partial sum per register lane, so levels differ within rounding; elementwise operations
// (gelu_*, multiply) give the same bits. Sums over rows add one row after the other. Any alignment;
// arrays must not overlap unless stated. O(elements), one or two passes over memory each.
struct TransformerKernels {
  // y = gelu(z); y may be z.
  void (*gelu)(GeluForm form, std::int64_t n, const float* z, float* y);
  // dz = dy gelu'(z); dz may be dy.
  void (*gelu_backward)(GeluForm form, std::int64_t n, const float* z, const float* dy, float* dz);
  // y = a b; y may be a or b.
  void (*multiply)(std::int64_t n, const float* a, const float* b, float* y);
  // y = gamma (x - mean) rstd + beta (Ba et al. 2016). y may be x. Writes mean and rstd for
  // backward.
  void (*layer_norm)(const LayerNormShape& shape, const float* x, const float* gamma,
                     const float* beta, float* y, float* mean, float* rstd);
  // dx, which may be dy, is overwritten; dgamma and dbeta [n] are added to.
  void (*layer_norm_backward)(const LayerNormShape& shape, const float* x, const float* gamma,
                              const float* mean, const float* rstd, const float* dy, float* dx,
                              float* dgamma, float* dbeta);
  // x = softmax(scale x) in each row, and lse [rows] = log Σ exp(scale x), with `stride` floats
  // between rows of lse.
  void (*softmax)(std::int64_t rows, std::int64_t n, float scale, float* x, float* lse,
                  std::int64_t stride);
  // Recomputes the softmax from lse: x = exp(scale x - lse).
  void (*softmax_again)(std::int64_t rows, std::int64_t n, float scale, const float* lse,
                        std::int64_t stride, float* x);
  // dx = scale p (dp - delta), with delta [rows] = Σ p dp over a row. dx may be dp.
  void (*softmax_backward)(std::int64_t rows, std::int64_t n, float scale, const float* p,
                           const float* dp, const float* delta, float* dx);
  // loss [rows] = log Σ exp(x) - x[label], 0 if the label is kIgnoredLabel. dx = scale (softmax -
  // one-hot(label)), 0 if ignored; dx may be x, or nullptr if not needed. REQUIRES: 0 <= label < n,
  // or kIgnoredLabel.
  void (*cross_entropy)(std::int64_t rows, std::int64_t n, const float* x,
                        const std::int32_t* label, float scale, float* loss, float* dx);
};
const TransformerKernels& TransformerKernelsFor(CpuLevel level);

// Embedding lookup: out [ids, width] (+)= table[id], with table [entries, width] f32. REQUIRES: 0
// <= id < entries (CheckTokens of nn/ ensures it).
void GatherRows(std::span<const std::int32_t> ids, std::int64_t width, const float* table,
                bool accumulate, float* out);
// dtable[id] += dout, in the order of ids: the same bytes also with repeated ids.
void ScatterAddRows(std::span<const std::int32_t> ids, std::int64_t width, const float* dout,
                    float* dtable);
// AddToRows: x [rows, n] += bias [n] in each row. SumOfRows is its gradient: dbias += Σ dx over the
// rows, in their order. stride: floats between rows; 0: dense.
void AddToRows(std::int64_t rows, std::int64_t n, const float* bias, float* x,
               std::int64_t stride = 0);
void SumOfRows(std::int64_t rows, std::int64_t n, const float* dx, float* dbias,
               std::int64_t stride = 0);
// y += x. [n] each.
void AddInto(std::int64_t n, const float* x, float* y);

}  // namespace troop
