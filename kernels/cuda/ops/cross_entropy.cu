// Cross entropy of whole and of tensor-parallel rows, one block (or warp) per row.
#include "kernels/cuda/ops/cross_entropy.h"

#include <type_traits>

#include "kernels/cuda/runtime/launch.h"
#include "kernels/cuda/runtime/vector_types.h"
#include "kernels/transformer/layer_norm_gelu.h"

namespace troop::cuda {
namespace {

// Running Σ exp(x - largest), in one pass (online softmax, Milakov & Gimelshein 2018).
struct ExpSum {
  float largest = -INFINITY, sum = 0;
};

// exp(from - to), 1 if equal: -infinity minus itself would give NaN.
TROOP_DEVICE float Shrunk(float from, float to) { return from == to ? 1 : expf(from - to); }
TROOP_DEVICE ExpSum Both(const ExpSum& a, const ExpSum& b) {
  const float largest = b.largest > a.largest ? b.largest : a.largest;
  return {largest, a.sum * Shrunk(a.largest, largest) + b.sum * Shrunk(b.largest, largest)};
}

constexpr int kEach = 8;  // elements per thread and step, for aligned rows

// `seen` with kCount more values.
template <int kCount>
TROOP_DEVICE ExpSum With(const ExpSum& seen, const float (&x)[kCount]) {
  float largest = seen.largest;
  TROOP_UNROLL for (int j = 0; j < kCount; ++j) largest = x[j] > largest ? x[j] : largest;
  float sum = seen.sum * Shrunk(seen.largest, largest);
  TROOP_UNROLL for (int j = 0; j < kCount; ++j) sum += Shrunk(x[j], largest);
  return {largest, sum};
}

// CrossEntropyArgs with typed pointers. by_eight: rows are aligned to kEach elements.
template <class T>
struct Rows {
  std::int64_t n, stride, first;
  bool by_eight;
  const T* x;
  const std::int32_t* label;
  float scale;
  const float* weight;
  float* loss;
  std::int32_t* right;
  T* dx;
};

// ExpSum of a row, computed by the whole block; all threads get it. Reduced over lanes, then over
// warps.
template <class T, int kThreads>
TROOP_DEVICE ExpSum SumOf(const T* x, std::int64_t n, bool by_eight) {
  ExpSum seen;
  // Groups of eight, then single elements.
  const std::int64_t eights = by_eight ? n / kEach * kEach : 0;
  for (std::int64_t i = threadIdx.x * kEach; i < eights; i += kThreads * kEach) {
    float eight[kEach];
    GetVector(x + i, eight);
    seen = With(seen, eight);
  }
  for (std::int64_t i = eights + threadIdx.x; i < n; i += kThreads) {
    const float one[1] = {Get(x + i)};
    seen = With(seen, one);
  }
  for (int step = 16; step > 0; step /= 2) {
    seen = Both(seen, {__shfl_xor_sync(kWholeWarp, seen.largest, step),
                       __shfl_xor_sync(kWholeWarp, seen.sum, step)});
  }
  // (largest, sum) of each warp.
  TROOP_SHARED(float, of_warp, 2 * (kThreads / 32));
  const int warp = int(threadIdx.x / 32);
  if (threadIdx.x % 32 == 0) of_warp[2 * warp] = seen.largest, of_warp[2 * warp + 1] = seen.sum;
  __syncthreads();
  seen = {of_warp[0], of_warp[1]};
  for (int w = 1; w < kThreads / 32; ++w) seen = Both(seen, {of_warp[2 * w], of_warp[2 * w + 1]});
  return seen;
}

// Writes dx of a row, up to the start of the next row, by the whole block. wanted: index of the
// label in this slice, possibly outside of it.
template <class T, int kThreads>
TROOP_DEVICE void PutGradient(const Rows<T>& rows, std::int64_t row, bool counts,
                              std::int64_t wanted, float log_sum) {
  if (rows.dx == nullptr) return;
  const T* const x = rows.x + row * rows.stride;
  T* const dx = rows.dx + row * rows.stride;
  const float scale = rows.weight != nullptr ? rows.scale * rows.weight[row] : rows.scale;
  const auto gradient = [&](std::int64_t i, float z) {
    const bool asked = counts && i < rows.n;
    return asked ? scale * (expf(z - log_sum) - (i == wanted ? 1.0f : 0.0f)) : 0.0f;
  };
  if (!rows.by_eight) {
    for (std::int64_t i = threadIdx.x; i < rows.stride; i += kThreads)
      Put(dx + i, gradient(i, Get(x + i)));
    return;
  }
  for (std::int64_t i = threadIdx.x * kEach; i < rows.stride; i += kThreads * kEach) {
    float eight[kEach];
    GetVector(x + i, eight);
    TROOP_UNROLL for (int j = 0; j < kEach; ++j) eight[j] = gradient(i + j, eight[j]);
    PutVector(dx + i, eight);
  }
}

// 1 if the label has the largest logit of its row. The maximum passes over NaN; the loss does not,
// and a row with NaN or infinity is not correct.
TROOP_DEVICE std::int32_t Correct(bool counts, float of_label, float largest, float loss) {
  return counts && of_label >= largest && isfinite(loss) ? 1 : 0;
}

// One block of kThreads per row; for short rows, a warp.
template <class T, int kThreads>
TROOP_KERNEL void __launch_bounds__(kThreads) CrossEntropyKernel(Rows<T> rows) {
  const std::int64_t row = blockIdx.x;
  const std::int32_t wanted = rows.label[row];
  const bool counts = wanted != kIgnoredLabel;
  const T* const x = rows.x + row * rows.stride;
  const float of_label = counts ? Get(x + wanted) : 0;  // before dx, which may be x, is written
  const ExpSum seen = SumOf<T, kThreads>(x, counts ? rows.n : 0, rows.by_eight);
  const float log_sum = seen.largest + logf(seen.sum);
  if (threadIdx.x == 0) {
    const float loss = counts ? log_sum - of_label : 0;
    rows.loss[row] = loss;
    if (rows.right != nullptr) rows.right[row] = Correct(counts, of_label, seen.largest, loss);
  }
  PutGradient<T, kThreads>(rows, row, counts, wanted, log_sum);
}

// Step 1 of the tensor-parallel form: the slice's maximum, its sum, and the label's x.
template <class T, int kThreads>
TROOP_KERNEL void __launch_bounds__(kThreads) BeginKernel(Rows<T> rows, CrossEntropySums to) {
  const std::int64_t row = blockIdx.x, wanted = rows.label[row] - rows.first;
  const bool counts = rows.label[row] != kIgnoredLabel;
  const bool here = counts && wanted >= 0 && wanted < rows.n;
  const T* const x = rows.x + row * rows.stride;
  const ExpSum seen = SumOf<T, kThreads>(x, counts ? rows.n : 0, rows.by_eight);
  if (threadIdx.x != 0) return;
  // Ignored rows get neutral values, which every rank adds without effect.
  to.largest[row] = to.own[row] = counts ? seen.largest : 0;
  to.sums[row] = counts ? seen.sum : 1;
  to.sums[gridDim.x + row] = here ? Get(x + wanted) : 0;
}

// Step 2: rescales the sum from the maximum of the slice to that of all ranks.
TROOP_KERNEL void ShareKernel(std::int64_t rows, CrossEntropySums to) {
  const std::int64_t row = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (row < rows) to.sums[row] *= Shrunk(to.own[row], to.largest[row]);
}

// Step 3: loss, correctness and gradient from the sums of all ranks.
template <class T, int kThreads>
TROOP_KERNEL void __launch_bounds__(kThreads) EndKernel(Rows<T> rows, CrossEntropySums of) {
  const std::int64_t row = blockIdx.x;
  const bool counts = rows.label[row] != kIgnoredLabel;
  // All ranks compute the same loss from the exchanged sums.
  const float largest = of.largest[row], log_of = logf(of.sums[row]);
  const float of_label = of.sums[gridDim.x + row];
  if (threadIdx.x == 0) {
    const float loss = counts ? log_of + (largest - of_label) : 0;
    rows.loss[row] = loss;
    if (rows.right != nullptr) rows.right[row] = Correct(counts, of_label, largest, loss);
  }
  PutGradient<T, kThreads>(rows, row, counts, rows.label[row] - rows.first, largest + log_of);
}

// Calls run(launch shape, rows, constant: threads per block).
template <class T, class Run>
void RunOf(const CrossEntropyArgs& args, const Run& run) {
  const std::int64_t stride = args.stride > 0 ? args.stride : args.n;
  const auto at_sixteen = [](const void* p) {
    return reinterpret_cast<std::uintptr_t>(p) % 16 == 0;
  };
  const Rows<T> rows{args.n,
                     stride,
                     args.first,
                     stride % kEach == 0 && at_sixteen(args.x) && at_sixteen(args.dx),
                     static_cast<const T*>(args.x),
                     args.label,
                     args.scale,
                     args.weight,
                     args.loss,
                     args.right,
                     static_cast<T*>(args.dx)};
  // A warp suffices for up to 512 columns.
  const LaunchShape shape{dim3(unsigned(args.rows)), dim3(args.n <= 512 ? 32 : 512)};
  if (args.n <= 512) return run(shape, rows, std::integral_constant<int, 32>());
  run(shape, rows, std::integral_constant<int, 512>());
}
template <class Run>
void WithRows(const CrossEntropyArgs& args, const Run& run) {
  if (args.dtype == DType::kBF16) return RunOf<BF16>(args, run);
  RunOf<float>(args, run);
}

}  // namespace

void CrossEntropy(Stream& stream, const CrossEntropyArgs& args) {
  WithRows(args, [&]<class T, int kThreads>(const LaunchShape& shape, const Rows<T>& rows,
                                            std::integral_constant<int, kThreads>) {
    Launch(stream, "CrossEntropy", shape, CrossEntropyKernel<T, kThreads>, rows);
  });
}

void BeginSlicedCrossEntropy(Stream& stream, const CrossEntropyArgs& args,
                             const CrossEntropySums& to) {
  WithRows(args, [&]<class T, int kThreads>(const LaunchShape& shape, const Rows<T>& rows,
                                            std::integral_constant<int, kThreads>) {
    Launch(stream, "BeginSlicedCrossEntropy", shape, BeginKernel<T, kThreads>, rows, to);
  });
}

void ShareSlicedCrossEntropy(Stream& stream, const CrossEntropyArgs& args,
                             const CrossEntropySums& to) {
  constexpr int kThreads = 128;
  Launch(stream, "ShareSlicedCrossEntropy",
         {dim3(unsigned(CeilDivide(args.rows, kThreads))), dim3(kThreads)}, ShareKernel, args.rows,
         to);
}

void EndSlicedCrossEntropy(Stream& stream, const CrossEntropyArgs& args,
                           const CrossEntropySums& of) {
  WithRows(args, [&]<class T, int kThreads>(const LaunchShape& shape, const Rows<T>& rows,
                                            std::integral_constant<int, kThreads>) {
    Launch(stream, "EndSlicedCrossEntropy", shape, EndKernel<T, kThreads>, rows, of);
  });
}

}  // namespace troop::cuda
