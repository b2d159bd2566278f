// Layer norm: a warp per row in registers, or a block per row for long or unaligned rows.
#include "kernels/cuda/ops/layer_norm.h"

#include <algorithm>
#include <initializer_list>
#include <type_traits>
#include <utility>

#include "kernels/cuda/runtime/launch.h"
#include "kernels/cuda/runtime/vector_types.h"

namespace troop::cuda {
namespace {

// Warps work independently in the forward pass, so the block size is not critical.
constexpr int kWarps = 4, kThreads = 32 * kWarps;
// Elements of a row that a lane keeps, at most; number of blocks that accumulate the gradients of
// gamma and beta.
constexpr int kKept = 32, kBlocks = 256;
constexpr int kWideThreads = 256;

// A row in the registers of a warp: each lane has kVector contiguous elements, kParts times, 32
// lanes side by side.
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

// One warp per row: mean, then variance from the registers, then y.
template <class T, int kParts>
TROOP_KERNEL void __launch_bounds__(kThreads)
    NormKernel(LayerNormShape shape, const T* x, const float* gamma, const float* beta, T* y,
               float* mean, float* rstd) {
  using OfRow = Row<T, kParts>;
  const std::int64_t row = std::int64_t(blockIdx.x) * kWarps + threadIdx.x / 32, n = shape.n;
  if (row >= shape.rows) return;
  // The row is read once; both reductions run on registers.
  OfRow mine;
  mine.Read(x + row * n, n);
  // Step 1: the mean. Step 2: the variance. Step 3: the output.
  float sum = 0, squares = 0;
  TROOP_UNROLL for (int p = 0; p < kParts; ++p) {
    TROOP_UNROLL for (int i = 0; i < OfRow::kWidth; ++i) sum += mine.x[p][i];
  }
  // Variance around the mean: E[x²] - E[x]² would cancel. Columns past the end hold 0 and are
  // skipped.
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
  // WarpSum gives every lane the sums, so one lane stores them.
  if (threadIdx.x % 32 != 0) return;
  mean[row] = middle;
  rstd[row] = scale;
}

// With x^ = (x - mean) rstd and g = gamma dy: dx = rstd (g - mean of g - x^ mean of g x^). Each
// warp handles every (number of warps)-th row and accumulates dy x^ and dy in registers. The warps
// of a block then add theirs in order, and the block writes its part [2, n] to `parts`.
template <class T, int kParts>
TROOP_KERNEL void __launch_bounds__(kThreads)
    NormBackwardKernel(LayerNormShape shape, const T* x, const float* gamma, const float* mean,
                       const float* rstd, const T* dy, T* dx, float* parts) {
  using OfRow = Row<T, kParts>;
  const std::int64_t n = shape.n;
  const int warp = int(threadIdx.x / 32);
  // Accumulators of this warp, and gamma; they stay in registers over all rows.
  OfRow dgamma, dbeta, weight;
  TROOP_UNROLL for (int p = 0; p < kParts; ++p) {
    TROOP_UNROLL for (int i = 0; i < OfRow::kWidth; ++i) dgamma.x[p][i] = dbeta.x[p][i] = 0;
  }
  weight.Read(gamma, n);
  const std::int64_t step = std::int64_t(gridDim.x) * kWarps;
  for (std::int64_t row = std::int64_t(blockIdx.x) * kWarps + warp; row < shape.rows; row += step) {
    // Step 1: both means of the row, and its contribution to dgamma and dbeta.
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
    // Step 2: dx from the registers, without a second read of x and dy.
    TROOP_UNROLL for (int p = 0; p < kParts; ++p) {
      if (OfRow::column(p) >= n) continue;
      float out[OfRow::kWidth];
      TROOP_UNROLL for (int i = 0; i < OfRow::kWidth; ++i) {
        out[i] = scale * (d.x[p][i] - sum - normed.x[p][i] * product);
      }
      PutVector(dx + row * n + OfRow::column(p), out);
    }
  }
  // Warps take turns in a fixed order, so that the sums are reproducible.
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

// Sum over the kWideThreads threads of a block; all threads get it.
TROOP_DEVICE float BlockSum(float x, float* of_warp) {
  x = WarpSum(x);
  __syncthreads();  // other threads may still read the previous sum
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = x;
  __syncthreads();
  float all = 0;
  for (int w = 0; w < kWideThreads / 32; ++w) all += of_warp[w];
  return all;
}

// One block per row, for any size.
template <class T>
TROOP_KERNEL void __launch_bounds__(kWideThreads)
    WideNormKernel(LayerNormShape shape, const T* x, const float* gamma, const float* beta, T* y,
                   float* mean, float* rstd) {
  TROOP_SHARED(float, of_warp, kWideThreads / 32);
  const std::int64_t row = blockIdx.x, n = shape.n;
  x += row * n, y += row * n;
  // The row is read three times, since it may be too long for the registers.
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

// Backward pass for any row size, with the formulas of NormBackwardKernel. A block handles every
// (number of blocks)-th row and accumulates its part of dgamma and dbeta in global memory; each
// thread owns its columns, so no atomics are needed.
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
    // The two reductions of dx, and the contributions of the row to dgamma and dbeta.
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

// Adds the parts of all blocks to dgamma and dbeta. A block handles 32 columns: eight rows at a
// time, then the eight sums.
TROOP_KERNEL void AddPartsKernel(std::int64_t rows, std::int64_t n, const float* parts,
                                 float* dgamma, float* dbeta) {
  // 33, not 32: consecutive rows begin in different banks of shared memory.
  TROOP_SHARED(float, sums, 8 * 33);
  const int lane = int(threadIdx.x % 32), eighth = int(threadIdx.x / 32);
  const std::int64_t column = std::int64_t(blockIdx.x) * 32 + lane;
  float sum = 0;
  if (column < 2 * n) {
    // Fixed order of additions: rows ascending in each eighth, then the eighths.
    for (std::int64_t row = eighth; row < rows; row += 8) sum += parts[row * 2 * n + column];
  }
  sums[eighth * 33 + lane] = sum;
  __syncthreads();
  if (eighth != 0 || column >= 2 * n) return;
  float all = 0;
  for (int i = 0; i < 8; ++i) all += sums[i * 33 + lane];
  float* const to = column < n ? dgamma + column : dbeta + (column - n);
  // Only one thread has this column, so gradients accumulate without atomics.
  *to += all;
}

// Vector accesses need 16-byte alignment.
bool Aligned(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; }

// Number of parts of a row in registers; 0 if the row is too long or not vectorizable.
template <class T>
int PartsOf(std::int64_t n, std::initializer_list<const void*> arrays) {
  const bool vectors = n % kVector<T> == 0 && std::ranges::all_of(arrays, Aligned);
  const std::int64_t parts = CeilDivide(n, 32 * kVector<T>);
  return vectors && parts * kVector<T> <= kKept ? int(parts) : 0;
}

// Calls run(parts as a constant) if `parts` is not 0; only supported values are compiled.
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
void Forward(Stream& stream, const LayerNormArgs& args) {
  const LayerNormShape& shape = args.shape;
  const T* const x = static_cast<const T*>(args.x);
  T* const y = static_cast<T*>(args.y);
  // In registers if possible, else the kernel for any size.
  const int parts = PartsOf<T>(shape.n, {x, args.gamma, args.beta, y});
  const LaunchShape rows{dim3(unsigned(CeilDivide(shape.rows, kWarps))), dim3(kThreads)};
  WithParts<T>(parts, [&](auto constant) {
    Launch(stream, "LayerNorm", rows, NormKernel<T, decltype(constant)::value>, shape, x,
           args.gamma, args.beta, y, args.mean, args.rstd);
  });
  if (parts > 0) return;
  Launch(stream, "LayerNorm", {dim3(unsigned(shape.rows)), dim3(kWideThreads)}, WideNormKernel<T>,
         shape, x, args.gamma, args.beta, y, args.mean, args.rstd);
}

template <class T>
void Backward(Stream& stream, const LayerNormBackwardArgs& args) {
  const LayerNormShape& shape = args.shape;
  const T* const x = static_cast<const T*>(args.x);
  const T* const dy = static_cast<const T*>(args.dy);
  T* const dx = static_cast<T*>(args.dx);
  const int parts = PartsOf<T>(shape.n, {x, args.gamma, dy, dx});
  // No more blocks than have rows to work on.
  const std::int64_t blocks =
      std::min<std::int64_t>(kBlocks, parts > 0 ? CeilDivide(shape.rows, kWarps) : shape.rows);
  const LaunchShape some{dim3(unsigned(blocks)), dim3(kThreads),
                         std::size_t(2 * shape.n) * sizeof(float)};
  WithParts<T>(parts, [&](auto constant) {
    Launch(stream, "LayerNormBackward", some, NormBackwardKernel<T, decltype(constant)::value>,
           shape, x, args.gamma, args.mean, args.rstd, dy, dx, args.workspace);
  });
  if (parts == 0) {
    Launch(stream, "LayerNormBackward", {dim3(unsigned(blocks)), dim3(kWideThreads)},
           WideNormBackwardKernel<T>, shape, x, args.gamma, args.mean, args.rstd, dy, dx,
           args.workspace);
  }
  Launch(stream, "LayerNormBackward's sums",
         {dim3(unsigned(CeilDivide(2 * shape.n, 32))), dim3(256)}, AddPartsKernel, blocks, shape.n,
         args.workspace, args.dgamma, args.dbeta);
}

}  // namespace

void LayerNorm(Stream& stream, const LayerNormArgs& args) {
  if (args.dtype == DType::kBF16) return Forward<BF16>(stream, args);
  Forward<float>(stream, args);
}

std::int64_t LayerNormWorkspace(std::int64_t n) { return 2 * n * kBlocks; }

void LayerNormBackward(Stream& stream, const LayerNormBackwardArgs& args) {
  if (args.dtype == DType::kBF16) return Backward<BF16>(stream, args);
  Backward<float>(stream, args);
}

}  // namespace troop::cuda
