#pragma once

#include <cstdint>
#include <span>

#include "kernels/simd/cpu_features.h"

namespace troop {

// Gaussian error linear unit (Hendrycks & Gimpel 2016): x Φ(x), exactly (BERT), or with
// Φ(x) ≈ (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2 (ALBERT's `gelu_new`).
enum class GeluForm : std::uint8_t { kErf = 0, kTanh = 1 };

// [rows, n] each, dense. mean, rstd: [rows]; rstd = 1 / sqrt(variance + epsilon).
struct LayerNormShape {
  std::int64_t rows = 0, n = 0;
  float epsilon = 1e-12f;
};

// A label of a token that has no loss, as PyTorch has it.
inline constexpr std::int32_t kIgnoredLabel = -100;

// What a transformer does between its products, elementwise or row by row. Sums over a row have as
// many lanes as a register, so levels differ within rounding; the elementwise ones (gelu_*,
// multiply) give the same bits. Sums over rows are one row after the other. Any alignment; arrays
// don't overlap unless said. Each is O(elements), one or two passes over memory.
struct TransformerKernels {
  // y = gelu(z); y may be z.
  void (*gelu)(GeluForm form, std::int64_t n, const float* z, float* y);
  // dz = dy gelu'(z); dz may be dy.
  void (*gelu_backward)(GeluForm form, std::int64_t n, const float* z, const float* dy, float* dz);
  // y = a b; y may be a or b.
  void (*multiply)(std::int64_t n, const float* a, const float* b, float* y);
  // Ba et al. 2016: y = gamma (x - mean) rstd + beta. y may be x.
  void (*layer_norm)(const LayerNormShape& shape, const float* x, const float* gamma,
                     const float* beta, float* y, float* mean, float* rstd);
  // dx (which may be dy), and dgamma, dbeta [n], added into.
  void (*layer_norm_backward)(const LayerNormShape& shape, const float* x, const float* gamma,
                              const float* mean, const float* rstd, const float* dy, float* dx,
                              float* dgamma, float* dbeta);
  // x = softmax(scale x) in each row, and its lse [rows] = log Σ exp(scale x), rows `stride` apart.
  void (*softmax)(std::int64_t rows, std::int64_t n, float scale, float* x, float* lse,
                  std::int64_t stride);
  // The same again of what was not kept: x = exp(scale x - lse).
  void (*softmax_again)(std::int64_t rows, std::int64_t n, float scale, const float* lse,
                        std::int64_t stride, float* x);
  // dx = scale p (dp - delta), with delta [rows] = Σ p dp of a row. dx may be dp.
  void (*softmax_backward)(std::int64_t rows, std::int64_t n, float scale, const float* p,
                           const float* dp, const float* delta, float* dx);
  // loss [rows] = log Σ exp(x) - x[label], 0 where the label is kIgnoredLabel. dx: scale (softmax -
  // one at the label), 0 where ignored; nullptr: not wanted. dx may be x.
  // REQUIRES: 0 <= label < n, or ignored.
  void (*cross_entropy)(std::int64_t rows, std::int64_t n, const float* x,
                        const std::int32_t* label, float scale, float* loss, float* dx);
};
const TransformerKernels& TransformerKernelsFor(CpuLevel level);

// Embedding tables, [entries, width] f32. REQUIRES: 0 <= id < entries (CheckTokens of nn/ sees to
// it). out [ids, width] (+)= table[id].
void GatherRows(std::span<const std::int32_t> ids, std::int64_t width, const float* table,
                bool accumulate, float* out);
// dtable[id] += dout, one id after the other in their order: the same bytes whatever repeats.
void ScatterAddRows(std::span<const std::int32_t> ids, std::int64_t width, const float* dout,
                    float* dtable);
// x [rows, n] += bias [n] in each row; and its gradient, dbias += Σ dx over the rows, in their
// order. Rows are `stride` apart; 0: dense.
void AddToRows(std::int64_t rows, std::int64_t n, const float* bias, float* x,
               std::int64_t stride = 0);
void SumOfRows(std::int64_t rows, std::int64_t n, const float* dx, float* dbias,
               std::int64_t stride = 0);
// y += x. [n] each.
void AddInto(std::int64_t n, const float* x, float* y);

}  // namespace troop
