#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/linear/linear.h"
#include "kernels/simd/cpu_features.h"

// Wide linear layers at small batches, on weights in the plain layout they are trained in. A step
// of a library's kernels spends more on bringing weights into its own layout and gradients out of
// it than on the products: at [32, 3136] x [1024, 3136], 3.3 ms of 7.4. Here there is no other
// layout.
namespace troop {

// Above it a library's packed kernels win: their packing is paid once for all rows.
inline constexpr std::int64_t kNarrowBatchMax = 64;
// So many rows of x are turned into columns at a time, at most.
inline constexpr std::int64_t kNarrowColumnsMax = 32;

// Shapes as in gemm.h; X is f32 or bf16. Any alignment. Sums are taken in an order that depends on
// the level and the batch, so paths agree within rounding only: of a sum of n products about
// sqrt(n) * 2^-24 of its terms' size (bf16: the products are exact, sums are f32 as well).
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
inline std::int64_t NarrowScratch(const LinearShape& shape, std::int64_t batch) {
  return std::max((batch + 1) / 2 * shape.out, kNarrowColumnsMax * shape.in);
}

const NarrowKernels<float>& NarrowKernelsF32For(CpuLevel level);
// nullptr below kAvx512Bf16: there the processor has no such products.
const NarrowKernels<BF16>* NarrowKernelsBF16For(CpuLevel level);

}  // namespace troop
