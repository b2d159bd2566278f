#pragma once

#include <cstdint>

#include "kernels/simd/cpu_features.h"

namespace troop {

// c [m, n] = op(a) · op(b) + beta · c, row-major. op(a): [m, k], or [k, m] transposed; op(b): [k,
// n], or [n, k] transposed. A leading dimension is the distance of two rows in elements; 0: dense.
struct MatMulShape {
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  std::int64_t lda = 0, ldb = 0, ldc = 0;
};

// For sizes that change with every call, like the tokens of a batch: nothing is compiled or kept
// for a size (layers of fixed batches: gemm.h). beta: 0 (c is not read) or 1. The same input gives
// the same bytes on one machine and one number of threads; machines differ within rounding. Runs on
// SetKernelThreads threads. O(m n k).
void MatMul(const MatMulShape& shape, const float* a, const float* b, float beta, float* c);

// The same with a and b rounded to bf16 (to nearest, ties to even) on their way into registers;
// products are exact, sums and c f32. Twice as fast where the processor multiplies bf16
// (CpuLevel::kAvx512Bf16), else a test of what the rounding costs. Operands stay f32 in memory:
// packing reads them anyway. Runs on the calling thread alone there.
void MatMulBF16(const MatMulShape& shape, const float* a, const float* b, float beta, float* c);

// One way of it, for tests. Ways differ in the order of their sums.
using MatMulFunction = void (*)(const MatMulShape&, const float*, const float*, float, float*);
MatMulFunction MatMulBF16For(CpuLevel level);

}  // namespace troop
