#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/linear/linear.h"
#include "kernels/simd/cpu_features.h"

// Wide linear layers at small batches, with weights in the plain layout that they are trained in.
// oneDNN spends more time on reordering the weights and their gradient than on the products: 3.3 of
// 7.4 ms for [32, 3136] x [1024, 3136]. These kernels reorder neither.
namespace troop {

// Largest batch. Above it oneDNN is faster: it reorders the weights once for all rows.
inline constexpr std::int64_t kNarrowBatchMax = 64;
// Largest number of rows of x that are transposed at a time.
inline constexpr std::int64_t kNarrowColumnsMax = 32;

// Function table. Shapes: LinearShape; X is f32 or bf16; any alignment. The order of sums depends
// on the level and the batch, so paths agree within rounding: for a sum of n products, about
// sqrt(n) * 2^-24 of the size of its terms. With bf16 the products are exact and sums are f32 too.
template <class X>
struct NarrowKernels {
  // y [batch, out] f32, before any activation = x · wᵀ + bias. scratch: NarrowScratch floats.
  void (*forward)(const LinearShape& shape, std::int64_t batch, const X* weight, const float* bias,
                  const X* x, float* scratch, float* y);
  // dx [batch, in] f32 = dz · w.
  void (*backward_data)(const LinearShape& shape, std::int64_t batch, const X* weight, const X* dz,
                        float* dx);
  // dw [out, in] (+)= dzᵀ · x, db [out] (+)= Σ dz. scratch: NarrowScratch floats.
  void (*backward_weight)(const LinearShape& shape, std::int64_t batch, const X* x, const X* dz,
                          float* scratch, float* dw, float* db, bool accumulate);
};
// Number of scratch floats: pairs of dz, or the transposed rows of x.
inline std::int64_t NarrowScratch(const LinearShape& shape, std::int64_t batch) {
  return std::max((batch + 1) / 2 * shape.out, kNarrowColumnsMax * shape.in);
}

const NarrowKernels<float>& NarrowKernelsF32For(CpuLevel level);
// nullptr below kAvx512Bf16, which has no bf16 products.
const NarrowKernels<BF16>* NarrowKernelsBF16For(CpuLevel level);

}  // namespace troop
