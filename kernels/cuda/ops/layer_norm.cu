#include "kernels/cuda/ops/layer_norm.h"

#include <algorithm>
#include <initializer_list>
#include <type_traits>
#include <utility>

#include "kernels/cuda/runtime/launch.h"
#include "kernels/cuda/runtime/vector_types.h"

namespace troop::cuda {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
// Numbers of a row that a lane keeps, at most; so many blocks add up gradients of gamma and beta.
constexpr int kKept = 32, kBlocks = 256;
constexpr int kWideThreads = 256;

// A lane has kVector numbers, 32 lanes side by side, kParts times: a row of up to 32 times that.
template <class T, int kParts>
struct Row {
  static constexpr int kWidth = kVector<T>;
  float x[kParts][kWidth];
  TROOP_DEVICE static std::int64_t column(int part) {
    return (std::int64_t(part) * 32 + threadIdx.x % 32) * kWidth;
  }
  template <class From>
  TROOP_DEVICE void Read(const From* row, std::int64_t n) {
    TROOP_UNROLL for (int p = 0; p < kParts; ++p) {
      if (column(p) < n) {
        GetVector(row + column(p), x[p]);
      } else {
        TROOP_UNROLL for (int i = 0; i < kWidth; ++i) x[p][i] = 0;
      }
    }
  }
};

template <class T, int kParts>
TROOP_KERNEL void __launch_bounds__(kThreads)
    NormKernel(LayerNormShape shape, const T* x, const float* gamma, const float* beta, T* y,
               float* mean, float* rstd) {
  using OfRow = Row<T, kParts>;
  const std::int64_t row = std::int64_t(blockIdx.x) * kWarps + threadIdx.x / 32, n = shape.n;
  if (row >= shape.rows) return;
  OfRow mine;
  mine.Read(x + row * n, n);
  float sum = 0, squares = 0;
  TROOP_UNROLL for (int p = 0; p < kParts; ++p) {
    TROOP_UNROLL for (int i = 0; i < OfRow::kWidth; ++i) sum += mine.x[p][i];
  }
  const float middle = WarpSum(sum) / float(n);
  TROOP_UNROLL for (int p = 0; p < kParts; ++p) {
    if (OfRow::column(p) >= n) continue;
    TROOP_UNROLL for (int i = 0; i < OfRow::kWidth; ++i) {
      const float d = mine.x[p][i] - middle;
      squares += d * d;
    }
  }
  const float scale = 1 / sqrtf(WarpSum(squares) / float(n) + shape.epsilon);
  TROOP_UNROLL for (int p = 0; p < kParts; ++p) {
    if (OfRow::column(p) >= n) continue;
    float g[OfRow::kWidth], b[OfRow::kWidth], out[OfRow::kWidth];
    GetVector(gamma + OfRow::column(p), g);
    GetVector(beta + OfRow::column(p), b);
    TROOP_UNROLL for (int i = 0; i < OfRow::kWidth; ++i) {
      out[i] = g[i] * ((mine.x[p][i] - middle) * scale) + b[i];
    }
    PutVector(y + row * n + OfRow::column(p), out);
  }
  if (threadIdx.x % 32 != 0) return;
  mean[row] = middle;
  rstd[row] = scale;
}

// With x^ = (x - mean) rstd and g = gamma dy: dx = rstd (g - mean of g - x^ mean of g x^). Each
// warp takes every so many rows and keeps its sums of dy x^ and dy; the warps of a block add theirs
// up one after the other, and a block has its part [2, n] of `parts`.
template <class T, int kParts>
TROOP_KERNEL void __launch_bounds__(kThreads)
    NormBackwardKernel(LayerNormShape shape, const T* x, const float* gamma, const float* mean,
                       const float* rstd, const T* dy, T* dx, float* parts) {
  using OfRow = Row<T, kParts>;
  const std::int64_t n = shape.n;
  const int warp = int(threadIdx.x / 32);
  OfRow dgamma, dbeta, weight;
  TROOP_UNROLL for (int p = 0; p < kParts; ++p) {
    TROOP_UNROLL for (int i = 0; i < OfRow::kWidth; ++i) dgamma.x[p][i] = dbeta.x[p][i] = 0;
  }
  weight.Read(gamma, n);
  const std::int64_t step = std::int64_t(gridDim.x) * kWarps;
  for (std::int64_t row = std::int64_t(blockIdx.x) * kWarps + warp; row < shape.rows; row += step) {
    OfRow normed, d;
    normed.Read(x + row * n, n);
    d.Read(dy + row * n, n);
    const float middle = mean[row], scale = rstd[row];
    float sum = 0, product = 0;
    TROOP_UNROLL for (int p = 0; p < kParts; ++p) {
      TROOP_UNROLL for (int i = 0; i < OfRow::kWidth; ++i) {
        normed.x[p][i] = (normed.x[p][i] - middle) * scale;
        dgamma.x[p][i] += d.x[p][i] * normed.x[p][i];
        dbeta.x[p][i] += d.x[p][i];
        d.x[p][i] *= weight.x[p][i];
        sum += d.x[p][i];
        product += d.x[p][i] * normed.x[p][i];
      }
    }
    sum = WarpSum(sum) / float(n);
    product = WarpSum(product) / float(n);
    TROOP_UNROLL for (int p = 0; p < kParts; ++p) {
      if (OfRow::column(p) >= n) continue;
      float out[OfRow::kWidth];
      TROOP_UNROLL for (int i = 0; i < OfRow::kWidth; ++i) {
        out[i] = scale * (d.x[p][i] - sum - normed.x[p][i] * product);
      }
      PutVector(dx + row * n + OfRow::column(p), out);
    }
  }
  float* const sums = reinterpret_cast<float*>(DynamicShared());  // [2, n]
  for (int turn = 0; turn < kWarps; ++turn) {
    if (turn == warp) {
      TROOP_UNROLL for (int p = 0; p < kParts; ++p) {
        const std::int64_t at = OfRow::column(p);
        if (at >= n) continue;
        TROOP_UNROLL for (int i = 0; i < OfRow::kWidth; ++i) {
          sums[at + i] = (turn > 0 ? sums[at + i] : 0) + dgamma.x[p][i];
          sums[n + at + i] = (turn > 0 ? sums[n + at + i] : 0) + dbeta.x[p][i];
        }
      }
    }
    __syncthreads();
  }
  for (std::int64_t i = threadIdx.x; i < 2 * n; i += kThreads)
    parts[blockIdx.x * 2 * n + i] = sums[i];
}

// The sum of kWideThreads threads' numbers, to all of them.
TROOP_DEVICE float BlockSum(float x, float* of_warp) {
  x = WarpSum(x);
  __syncthreads();  // who still reads those of the sum before
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = x;
  __syncthreads();
  float all = 0;
  for (int w = 0; w < kWideThreads / 32; ++w) all += of_warp[w];
  return all;
}

// A block a row, of any size.
template <class T>
TROOP_KERNEL void __launch_bounds__(kWideThreads)
    WideNormKernel(LayerNormShape shape, const T* x, const float* gamma, const float* beta, T* y,
                   float* mean, float* rstd) {
  TROOP_SHARED(float, of_warp, kWideThreads / 32);
  const std::int64_t row = blockIdx.x, n = shape.n;
  x += row * n, y += row * n;
  float sum = 0, squares = 0;
  for (std::int64_t i = threadIdx.x; i < n; i += kWideThreads) sum += Get(x + i);
  const float middle = BlockSum(sum, of_warp) / float(n);
  for (std::int64_t i = threadIdx.x; i < n; i += kWideThreads) {
    const float d = Get(x + i) - middle;
    squares += d * d;
  }
  const float scale = 1 / sqrtf(BlockSum(squares, of_warp) / float(n) + shape.epsilon);
  for (std::int64_t i = threadIdx.x; i < n; i += kWideThreads) {
    Put(y + i, gamma[i] * ((Get(x + i) - middle) * scale) + beta[i]);
  }
  if (threadIdx.x != 0) return;
  mean[row] = middle;
  rstd[row] = scale;
}

template <class T>
TROOP_KERNEL void __launch_bounds__(kWideThreads)
    WideNormBackwardKernel(LayerNormShape shape, const T* x, const float* gamma, const float* mean,
                           const float* rstd, const T* dy, T* dx, float* parts) {
  TROOP_SHARED(float, of_warp, kWideThreads / 32);
  const std::int64_t n = shape.n;
  float* const dgamma = parts + blockIdx.x * 2 * n;
  float* const dbeta = dgamma + n;
  for (std::int64_t i = threadIdx.x; i < n; i += kWideThreads) dgamma[i] = dbeta[i] = 0;
  for (std::int64_t row = blockIdx.x; row < shape.rows; row += gridDim.x) {
    const float middle = mean[row], scale = rstd[row];
    float sum = 0, product = 0;
    for (std::int64_t i = threadIdx.x; i < n; i += kWideThreads) {
      const float normed = (Get(x + row * n + i) - middle) * scale, d = Get(dy + row * n + i);
      dgamma[i] += d * normed;
      dbeta[i] += d;
      sum += gamma[i] * d;
      product += gamma[i] * d * normed;
    }
    sum = BlockSum(sum, of_warp) / float(n);
    product = BlockSum(product, of_warp) / float(n);
    for (std::int64_t i = threadIdx.x; i < n; i += kWideThreads) {
      const float normed = (Get(x + row * n + i) - middle) * scale;
      Put(dx + row * n + i, scale * (gamma[i] * Get(dy + row * n + i) - sum - normed * product));
    }
  }
}

// A block adds up 32 columns of the blocks' parts: eight rows at a time, then the eight sums.
TROOP_KERNEL void AddPartsKernel(std::int64_t rows, std::int64_t n, const float* parts,
                                 float* dgamma, float* dbeta) {
  TROOP_SHARED(float, sums, 8 * 33);
  const int lane = int(threadIdx.x % 32), eighth = int(threadIdx.x / 32);
  const std::int64_t column = std::int64_t(blockIdx.x) * 32 + lane;
  float sum = 0;
  if (column < 2 * n) {
    for (std::int64_t row = eighth; row < rows; row += 8) sum += parts[row * 2 * n + column];
  }
  sums[eighth * 33 + lane] = sum;
  __syncthreads();
  if (eighth != 0 || column >= 2 * n) return;
  float all = 0;
  for (int i = 0; i < 8; ++i) all += sums[i * 33 + lane];
  float* const to = column < n ? dgamma + column : dbeta + (column - n);
  *to += all;
}

bool Aligned(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; }

// Parts of a row that a warp keeps; 0: it is too long, or nothing of whole vectors.
template <class T>
int PartsOf(std::int64_t n, std::initializer_list<const void*> arrays) {
  const bool vectors = n % kVector<T> == 0 && std::ranges::all_of(arrays, Aligned);
  const std::int64_t parts = CeilDivide(n, 32 * kVector<T>);
  return vectors && parts * kVector<T> <= kKept ? int(parts) : 0;
}

// Calls run(constant number of parts), of those that there are.
template <class T, class Run>
void WithParts(int parts, const Run& run) {
  const auto is = [&]<int kParts>(std::integral_constant<int, kParts> constant) {
    if constexpr (kParts * kVector<T> <= kKept) {
      if (parts == kParts) run(constant);
    }
  };
  [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) {
    (is(std::integral_constant<int, kIndex + 1>()), ...);
  }
  (std::make_integer_sequence<int, kKept / 4>());
}

template <class T>
void Forward(Stream& stream, const LayerNormShape& shape, const T* x, const float* gamma,
             const float* beta, T* y, float* mean, float* rstd) {
  const int parts = PartsOf<T>(shape.n, {x, gamma, beta, y});
  const LaunchShape rows{dim3(unsigned(CeilDivide(shape.rows, kWarps))), dim3(kThreads)};
  WithParts<T>(parts, [&](auto constant) {
    Launch(stream, "LayerNorm", rows, NormKernel<T, decltype(constant)::value>, shape, x, gamma,
           beta, y, mean, rstd);
  });
  if (parts > 0) return;
  Launch(stream, "LayerNorm", {dim3(unsigned(shape.rows)), dim3(kWideThreads)}, WideNormKernel<T>,
         shape, x, gamma, beta, y, mean, rstd);
}

template <class T>
void Backward(Stream& stream, const LayerNormShape& shape, const T* x, const float* gamma,
              const float* mean, const float* rstd, const T* dy, T* dx, float* dgamma, float* dbeta,
              float* workspace) {
  const int parts = PartsOf<T>(shape.n, {x, gamma, dy, dx});
  const std::int64_t blocks =
      std::min<std::int64_t>(kBlocks, parts > 0 ? CeilDivide(shape.rows, kWarps) : shape.rows);
  const LaunchShape some{dim3(unsigned(blocks)), dim3(kThreads),
                         std::size_t(2 * shape.n) * sizeof(float)};
  WithParts<T>(parts, [&](auto constant) {
    Launch(stream, "LayerNormBackward", some, NormBackwardKernel<T, decltype(constant)::value>,
           shape, x, gamma, mean, rstd, dy, dx, workspace);
  });
  if (parts == 0) {
    Launch(stream, "LayerNormBackward", {dim3(unsigned(blocks)), dim3(kWideThreads)},
           WideNormBackwardKernel<T>, shape, x, gamma, mean, rstd, dy, dx, workspace);
  }
  Launch(stream, "LayerNormBackward's sums",
         {dim3(unsigned(CeilDivide(2 * shape.n, 32))), dim3(256)}, AddPartsKernel, blocks, shape.n,
         workspace, dgamma, dbeta);
}

}  // namespace

void LayerNorm(Stream& stream, const LayerNormShape& shape, DType dtype, const void* x,
               const float* gamma, const float* beta, void* y, float* mean, float* rstd) {
  if (dtype == DType::kBF16) {
    Forward(stream, shape, static_cast<const BF16*>(x), gamma, beta, static_cast<BF16*>(y), mean,
            rstd);
  } else {
    Forward(stream, shape, static_cast<const float*>(x), gamma, beta, static_cast<float*>(y), mean,
            rstd);
  }
}

std::int64_t LayerNormWorkspace(std::int64_t n) { return 2 * n * kBlocks; }

void LayerNormBackward(Stream& stream, const LayerNormShape& shape, DType dtype, const void* x,
                       const float* gamma, const float* mean, const float* rstd, const void* dy,
                       void* dx, float* dgamma, float* dbeta, float* workspace) {
  if (dtype == DType::kBF16) {
    Backward(stream, shape, static_cast<const BF16*>(x), gamma, mean, rstd,
             static_cast<const BF16*>(dy), static_cast<BF16*>(dx), dgamma, dbeta, workspace);
  } else {
    Backward(stream, shape, static_cast<const float*>(x), gamma, mean, rstd,
             static_cast<const float*>(dy), static_cast<float*>(dx), dgamma, dbeta, workspace);
  }
}

}  // namespace troop::cuda
