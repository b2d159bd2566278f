#pragma once

#include <cstdint>

#include "kernels/simd/cpu_features.h"

namespace troop {

// Shape of c [m, n] = op(a) · op(b) + beta · c, row-major. a: [m, k], or [k, m] if transposed; b:
// [k, n], or [n, k] if transposed. A leading dimension is the distance of two rows in elements; 0:
// dense.
struct MatMulShape {
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  std::int64_t lda = 0, ldb = 0, ldc = 0;
};

// Matrix product for sizes that change with every call, such as the tokens of a batch: nothing is
// compiled or kept per size (layers with fixed batches: linear.h). beta: 0 (c is not read) or 1.
// The same input gives the same bytes on one machine with one number of threads; machines differ
// within rounding. Runs on SetKernelThreads threads. O(m n k).
void MatMul(const MatMulShape& shape, const float* a, const float* b, float beta, float* c);

// MatMul with a and b rounded to bf16 (to nearest, ties to even) when they are packed. Products are
// exact; sums and c are f32. Twice as fast as MatMul if the processor multiplies bf16
// (CpuLevel::kAvx512Bf16), and then single-threaded. On other processors it only reproduces the
// rounding. Operands stay f32 in memory, because packing reads them in any case.
void MatMulBF16(const MatMulShape& shape, const float* a, const float* b, float beta, float* c);

// The implementation of one level, for tests. Implementations differ in the order of sums.
using MatMulFunction = void (*)(const MatMulShape&, const float*, const float*, float, float*);
MatMulFunction MatMulBF16For(CpuLevel level);

}  // namespace troop
