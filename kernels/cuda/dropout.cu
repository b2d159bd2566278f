#include "kernels/cuda/dropout.h"

#include "kernels/cuda/dropout_code.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/vectors.h"

namespace troop::cuda {
namespace {

constexpr int kThreads = 256, kEach = 8;

// A thread has one block's eight elements: of 16 neighbours, each 16 threads read a line.
template <class T>
TROOP_KERNEL void DropAddKernel(const std::int32_t* starts, DropoutArgs drop, std::int64_t width,
                                const T* x, const T* add, T* y) {
  const std::int64_t s = blockIdx.y;
  const std::int64_t begin = starts != nullptr ? starts[s] : s;
  const std::int64_t end = starts != nullptr ? starts[s + 1] : s + 1;
  const std::int64_t n = (end - begin) * width, first = begin * width;
  const std::int64_t thread = std::int64_t(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t from = thread / kDropoutLanes * kDropoutGroup + thread % kDropoutLanes;
  if (from >= n) return;
  std::uint32_t word[4];
  DropoutBlock(drop.keys[s], drop.site, std::uint32_t(thread), word);
  TROOP_UNROLL for (int step = 0; step < kEach; ++step) {
    const std::int64_t e = from + step * kDropoutLanes;
    if (e >= n) break;
    const float factor = Keeps(word, step, drop.kept) ? drop.scale : 0;
    const float dropped = Get(x + first + e) * factor;
    Put(y + first + e, add != nullptr ? dropped + Get(add + first + e) : dropped);
  }
}

template <class T>
TROOP_KERNEL void AddKernel(std::int64_t n, const T* x, const T* add, T* y) {
  const std::int64_t i = (std::int64_t(blockIdx.x) * kThreads + threadIdx.x) * kEach;
  if (i + kEach <= n) {
    float a[kEach], b[kEach];
    GetVector(x + i, a);
    GetVector(add + i, b);
    TROOP_UNROLL for (int j = 0; j < kEach; ++j) a[j] += b[j];
    PutVector(y + i, a);
    return;
  }
  for (std::int64_t j = i; j < n; ++j) Put(y + j, Get(x + j) + Get(add + j));
}

template <class T>
void Run(Stream& stream, const PackedSequences& batch, const Dropout& dropout, std::int64_t width,
         const void* from, const void* plus, void* to) {
  const T* const x = static_cast<const T*>(from);
  const T* const add = static_cast<const T*>(plus);
  T* const y = static_cast<T*>(to);
  const std::int64_t n = batch.tokens * width;
  if (dropout.drops()) {
    const std::int64_t blocks = CeilDivide(batch.longest * width, kDropoutGroup) * kDropoutLanes;
    Launch(
        stream, "DropAdd",
        {dim3(unsigned(CeilDivide(blocks, kThreads)), unsigned(batch.sequences)), dim3(kThreads)},
        DropAddKernel<T>, batch.starts, ArgsOf(dropout), width, x, add, y);
  } else if (add != nullptr) {
    Launch(stream, "Add", {dim3(unsigned(CeilDivide(n, kThreads * kEach))), dim3(kThreads)},
           AddKernel<T>, n, x, add, y);
  } else if (x != y) {
    stream.CopyOnDevice(y, x, std::size_t(n) * sizeof(T));
  }
}

}  // namespace

void DropAdd(Stream& stream, const PackedSequences& batch, const Dropout& dropout,
             std::int64_t width, DType dtype, const void* x, const void* add, void* y) {
  if (dtype == DType::kBF16) {
    Run<BF16>(stream, batch, dropout, width, x, add, y);
  } else {
    Run<float>(stream, batch, dropout, width, x, add, y);
  }
}

}  // namespace troop::cuda
