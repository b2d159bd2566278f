// Dropout with an optional addition, whose masks equal those of kernels/transformer/dropout.h.
#include "kernels/cuda/ops/dropout.h"

#include "kernels/cuda/ops/dropout_device.h"
#include "kernels/cuda/runtime/launch.h"
#include "kernels/cuda/runtime/vector_types.h"

namespace troop::cuda {
namespace {

// kEach: elements per thread, those of one Philox block.
constexpr int kThreads = 256, kEach = 8;

// A thread handles the eight elements of a Philox block, which are 16 apart: 16 threads access 16
// contiguous elements at a time.
template <class T>
TROOP_KERNEL void DropAddKernel(const std::int32_t* starts, DropoutArgs drop, std::int64_t width,
                                const T* x, const T* add, T* y) {
  // Element numbers start at 0 in each sequence, so each has its own blocks (blockIdx.y).
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

// DropAddKernel for rows that are multiples of eight elements. Half a warp generates the bits of a
// group, and each of its threads handles eight contiguous elements, with 16-byte accesses for bf16.
// Ballots exchange the bits.
template <class T>
TROOP_KERNEL void DropAddEightsKernel(const std::int32_t* starts, DropoutArgs drop,
                                      std::int64_t width, const T* x, const T* add, T* y) {
  const std::int64_t s = blockIdx.y;
  const std::int64_t begin = starts != nullptr ? starts[s] : s;
  const std::int64_t end = starts != nullptr ? starts[s + 1] : s + 1;
  const std::int64_t n = (end - begin) * width, first = begin * width;
  const std::int64_t thread = std::int64_t(blockIdx.x) * kThreads + threadIdx.x;
  const int lane = int(threadIdx.x % 32), place = lane % kDropoutLanes;
  if ((thread - lane) / kDropoutLanes * kDropoutGroup >= n) return;  // the whole warp returns
  std::uint32_t word[4], kept = 0;
  DropoutBlock(drop.keys[s], drop.site, std::uint32_t(thread), word);
  TROOP_UNROLL for (int step = 0; step < kEach; ++step) {
    const std::uint32_t all = __ballot_sync(kWholeWarp, Keeps(word, step, drop.kept));
    // Element 8 place + i has the step place / 2 and the lane 8 (place % 2) + i.
    if (step == place / 2) kept = all;
  }
  // Now bit i is that of element i of this thread.
  kept >>= lane / kDropoutLanes * kDropoutLanes + place % 2 * kEach;
  const std::int64_t from = thread / kDropoutLanes * kDropoutGroup + place * kEach;
  if (from >= n) return;
  float a[kEach], b[kEach] = {};
  GetVector(x + first + from, a);
  if (add != nullptr) GetVector(add + first + from, b);
  TROOP_UNROLL for (int i = 0; i < kEach; ++i) {
    const float dropped = a[i] * ((kept >> i & 1) != 0 ? drop.scale : 0);
    a[i] = add != nullptr ? dropped + b[i] : dropped;
  }
  PutVector(y + first + from, a);
}

// One block per row. Since rows are few, each element generates its Philox block again.
template <class T>
TROOP_KERNEL void DropAddRowsKernel(const std::int32_t* starts, std::int64_t sequences,
                                    DropoutArgs drop, const std::int32_t* tokens,
                                    std::int64_t width, const T* x, const T* add, T* y) {
  const std::int32_t token = tokens[blockIdx.x];
  std::int64_t s = 0;  // last sequence that starts at or before `token`
  // Binary search.
  for (std::int64_t end = sequences; end - s > 1;) {
    const std::int64_t middle = (s + end) / 2;
    if (starts[middle] <= token) {
      s = middle;
    } else {
      end = middle;
    }
  }
  const DropoutKey key = drop.keys[s];
  const std::int64_t first = (token - starts[s]) * width, row = blockIdx.x * width;
  for (std::int64_t c = threadIdx.x; c < width; c += kThreads) {
    std::uint32_t word[4];
    DropoutBlock(key, drop.site, DropoutBlockOf(first + c), word);
    const float factor = Keeps(word, DropoutStepOf(first + c), drop.kept) ? drop.scale : 0;
    const float dropped = Get(x + row + c) * factor;
    Put(y + row + c, add != nullptr ? dropped + Get(add + row + c) : dropped);
  }
}

// y = x + add, eight elements per thread.
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

// y = x + add over n elements, for a rate of 0; a copy if add is nullptr.
template <class T>
void AddWhole(Stream& stream, std::int64_t n, const T* x, const T* add, T* y) {
  if (add != nullptr) {
    Launch(stream, "Add", {dim3(unsigned(CeilDivide(n, kThreads * kEach))), dim3(kThreads)},
           AddKernel<T>, n, x, add, y);
  } else if (x != y) {
    stream.CopyOnDevice(y, x, std::size_t(n) * sizeof(T));
  }
}

template <class T>
void Run(Stream& stream, const DropAddArgs& args, const T* x, const T* add, T* y) {
  const PackedSequences& batch = args.batch;
  const std::int64_t width = args.width;
  if (args.dropout.drops()) {
    // Threads for the longest sequence; those of shorter ones exit early.
    const std::int64_t blocks = CeilDivide(batch.longest * width, kDropoutGroup) * kDropoutLanes;
    const auto at = [](const T* p) { return reinterpret_cast<std::uintptr_t>(p); };
    // All rows start at multiples of eight elements, 16-byte aligned.
    const bool eights = width % kEach == 0 && (at(x) | at(add) | at(y)) % 16 == 0;
    Launch(
        stream, "DropAdd",
        {dim3(unsigned(CeilDivide(blocks, kThreads)), unsigned(batch.sequences)), dim3(kThreads)},
        eights ? DropAddEightsKernel<T> : DropAddKernel<T>, batch.starts, ArgsOf(args.dropout),
        width, x, add, y);
  } else {
    AddWhole(stream, batch.tokens * width, x, add, y);
  }
}

template <class T>
void RunRows(Stream& stream, const DropAddRowsArgs& args, const T* x, const T* add, T* y) {
  if (args.dropout.drops()) {
    Launch(stream, "DropAddRows", {dim3(unsigned(args.rows)), dim3(kThreads)}, DropAddRowsKernel<T>,
           args.batch.starts, args.batch.sequences, ArgsOf(args.dropout), args.token, args.width, x,
           add, y);
  } else {
    AddWhole(stream, args.rows * args.width, x, add, y);
  }
}

// Calls call(x, add, y) with typed pointers.
template <class Args, class Call>
void WithType(const Args& args, const Call& call) {
  const auto typed = [&]<class T>(T) {
    call(static_cast<const T*>(args.x), static_cast<const T*>(args.add), static_cast<T*>(args.y));
  };
  if (args.dtype == DType::kBF16) return typed(BF16());
  typed(float());
}

}  // namespace

void DropAdd(Stream& stream, const DropAddArgs& args) {
  WithType(args, [&](const auto* x, const auto* add, auto* y) { Run(stream, args, x, add, y); });
}

void DropAddRows(Stream& stream, const DropAddRowsArgs& args) {
  WithType(args,
           [&](const auto* x, const auto* add, auto* y) { RunRows(stream, args, x, add, y); });
}

}  // namespace troop::cuda
