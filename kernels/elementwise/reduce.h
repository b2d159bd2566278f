#pragma once

#include <cstdint>
#include <string_view>

#include "core/tensor/dtype.h"
#include "kernels/simd/cpu_features.h"

namespace troop {

// Reduction operation of a collective. The values are part of the wire format.
enum class Reduction : std::uint8_t { kSum = 0, kMax = 1, kMin = 2 };
std::string_view ReductionName(Reduction reduction);  // "sum", …

// Arguments of Reduce. All arrays have n elements of `dtype`.
struct ReduceArgs {
  Reduction reduction = Reduction::kSum;
  DType dtype = DType::kF32;
  std::int64_t n = 0;
  const void* a = nullptr;  // [n]
  const void* b = nullptr;  // [n]
  void* out = nullptr;      // [n], overwritten; may be a or b, otherwise there is no overlap
};
// out[i] = a[i] + b[i], or their maximum, or their minimum. All levels give equal bits: one
// correctly rounded operation per element. bf16 is added in f32 and rounded once; integers wrap;
// NaN in a or b gives NaN, also in max and min. O(n), one pass over memory.
void Reduce(const ReduceArgs& args);

// The implementation of one level, for tests.
using ReduceFunction = void (*)(const ReduceArgs&);
ReduceFunction ReduceFor(CpuLevel level);

}  // namespace troop
