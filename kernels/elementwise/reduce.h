#pragma once

#include <cstdint>
#include <string_view>

#include "core/tensor/dtype.h"
#include "kernels/simd/cpu_features.h"

namespace troop {

// How elements of several ranks become one. Fixed numbers: they travel on the wire.
enum class Reduction : std::uint8_t { kSum = 0, kMax = 1, kMin = 2 };
std::string_view ReductionName(Reduction reduction);  // "sum", …

// out[i] = a[i] + b[i], or the larger, or the smaller of the two; [n] each of `dtype`; out may be a
// or b, otherwise nothing overlaps. All levels give equal bits: one correctly rounded operation per
// element. bf16 is added in f32 and rounded once; integers wrap; a NaN in a or b gives NaN in max
// and min as well. O(n), one pass over memory.
void Reduce(Reduction reduction, DType dtype, std::int64_t n, const void* a, const void* b,
            void* out);

// One instruction set's version, for tests.
using ReduceFunction = void (*)(Reduction, DType, std::int64_t n, const void* a, const void* b,
                                void* out);
ReduceFunction ReduceFor(CpuLevel level);

}  // namespace troop
