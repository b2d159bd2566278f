#pragma once

#include <cstdint>
#include <string_view>

#include "core/tensor/dtype.h"
#include "kernels/simd/cpu_features.h"

namespace troop {

// Reduction operation of a collective. The values are part of the wire format.
enum class Reduction : std::uint8_t { kSum = 0, kMax = 1, kMin = 2 };
std::string_view ReductionName(Reduction reduction);  // "sum", …

// out[i] = a[i] + b[i], or their maximum, or their minimum. [n] each, of `dtype`; out may be a or
// b, otherwise arrays must not overlap. All levels give equal bits: one correctly rounded operation
// per element. bf16 is added in f32 and rounded once; integers wrap; NaN in a or b gives NaN, also
// in max and min. O(n), one pass over memory.
void Reduce(Reduction reduction, DType dtype, std::int64_t n, const void* a, const void* b,
            void* out);

// The implementation of one level, for tests.
using ReduceFunction = void (*)(Reduction, DType, std::int64_t n, const void* a, const void* b,
                                void* out);
ReduceFunction ReduceFor(CpuLevel level);

}  // namespace troop
