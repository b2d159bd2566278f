#include "kernels/cuda/cross_entropy.h"

#include "kernels/cuda/launch.h"
#include "kernels/cuda/vectors.h"
#include "kernels/transformer.h"

namespace troop::cuda {
namespace {

// Σ exp(x - largest) of what it has seen, in one pass (Milakov & Gimelshein 2018).
struct ExpSum {
  float largest = -INFINITY, sum = 0;
};

TROOP_DEVICE float Shrunk(float from, float to) { return from == to ? 1 : expf(from - to); }
TROOP_DEVICE ExpSum Both(const ExpSum& a, const ExpSum& b) {
  const float largest = b.largest > a.largest ? b.largest : a.largest;
  return {largest, a.sum * Shrunk(a.largest, largest) + b.sum * Shrunk(b.largest, largest)};
}

constexpr int kEach = 8;  // elements to a thread at a time, where rows lie at multiples of them

template <int kCount>
TROOP_DEVICE ExpSum With(const ExpSum& seen, const float (&x)[kCount]) {
  float largest = seen.largest;
  TROOP_UNROLL for (int j = 0; j < kCount; ++j) largest = x[j] > largest ? x[j] : largest;
  float sum = seen.sum * Shrunk(seen.largest, largest);
  TROOP_UNROLL for (int j = 0; j < kCount; ++j) sum += Shrunk(x[j], largest);
  return {largest, sum};
}

// CrossEntropyArgs of one type.
template <class T>
struct Rows {
  std::int64_t n, stride;
  bool by_eight;
  const T* x;
  const std::int32_t* label;
  float scale;
  float* loss;
  std::int32_t* right;
  T* dx;
};

// kThreads to a row: a warp has one to itself where it is short.
template <class T, int kThreads>
TROOP_KERNEL void __launch_bounds__(kThreads) CrossEntropyKernel(Rows<T> rows) {
  const std::int64_t row = blockIdx.x, n = rows.n;
  const std::int32_t wanted = rows.label[row];
  const bool counts = wanted != kIgnoredLabel;
  const T* const x = rows.x + row * rows.stride;
  ExpSum seen;
  if (counts) {
    const std::int64_t by_eight = rows.by_eight ? n / kEach * kEach : 0;
    for (std::int64_t i = threadIdx.x * kEach; i < by_eight; i += kThreads * kEach) {
      float eight[kEach];
      GetVector(x + i, eight);
      seen = With(seen, eight);
    }
    for (std::int64_t i = by_eight + threadIdx.x; i < n; i += kThreads) {
      const float one[1] = {Get(x + i)};
      seen = With(seen, one);
    }
  }
  for (int step = 16; step > 0; step /= 2) {
    seen = Both(seen, {__shfl_xor_sync(kWholeWarp, seen.largest, step),
                       __shfl_xor_sync(kWholeWarp, seen.sum, step)});
  }
  const float of_label = counts ? Get(x + wanted) : 0;  // before dx, which may be x, is written
  TROOP_SHARED(float, of_warp, 2 * (kThreads / 32));
  const int warp = int(threadIdx.x / 32);
  if (threadIdx.x % 32 == 0) of_warp[2 * warp] = seen.largest, of_warp[2 * warp + 1] = seen.sum;
  __syncthreads();
  seen = {of_warp[0], of_warp[1]};
  for (int w = 1; w < kThreads / 32; ++w) seen = Both(seen, {of_warp[2 * w], of_warp[2 * w + 1]});
  const float log_sum = seen.largest + logf(seen.sum);
  if (threadIdx.x == 0) {
    rows.loss[row] = counts ? log_sum - of_label : 0;
    if (rows.right != nullptr) rows.right[row] = counts && of_label >= seen.largest ? 1 : 0;
  }
  if (rows.dx == nullptr) return;
  T* const dx = rows.dx + row * rows.stride;
  const auto gradient = [&](std::int64_t i, float z) {
    const float p = counts && i < n ? expf(z - log_sum) : 0;
    return rows.scale * (p - (i == wanted ? 1.0f : 0.0f));
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

template <class T>
void Run(Stream& stream, const CrossEntropyArgs& args) {
  const std::int64_t stride = args.stride > 0 ? args.stride : args.n;
  const auto at_sixteen = [](const void* p) {
    return reinterpret_cast<std::uintptr_t>(p) % 16 == 0;
  };
  const Rows<T> rows{args.n,
                     stride,
                     stride % kEach == 0 && at_sixteen(args.x) && at_sixteen(args.dx),
                     static_cast<const T*>(args.x),
                     args.label,
                     args.scale,
                     args.loss,
                     args.right,
                     static_cast<T*>(args.dx)};
  const auto run = [&](unsigned threads, auto kernel) {
    Launch(stream, "CrossEntropy", {dim3(unsigned(args.rows)), dim3(threads)}, kernel, rows);
  };
  if (args.n <= 512) {
    run(32, CrossEntropyKernel<T, 32>);
  } else {
    run(512, CrossEntropyKernel<T, 512>);
  }
}

}  // namespace

void CrossEntropy(Stream& stream, const CrossEntropyArgs& args) {
  if (args.dtype == DType::kBF16) {
    Run<BF16>(stream, args);
  } else {
    Run<float>(stream, args);
  }
}

}  // namespace troop::cuda
