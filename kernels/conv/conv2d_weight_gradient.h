#pragma once

#include <cstddef>
#include <cstdint>

#include "core/tensor/tensor.h"
#include "kernels/conv/conv2d.h"
#include "kernels/simd/cpu_features.h"

// Weight gradient of a convolution in bf16, written in the plain layout of the trained weights.
// oneDNN reorders the operands of every call and returns the gradient in its own layout: for the
// first layer of Nature DQN and 32 items it takes 1.0 ms, of which the products need 0.4 ms.
namespace troop {

// dw [filters, kernel, kernel, channels] f32 (+)= dz ⊗ x, db [filters] f32 (+)= Σ dz; shapes as in
// conv2d.h. scratch: ConvGradientScratch bytes, 64-byte aligned; the other arrays have no alignment
// requirement. Products are exact. Sums are f32, first within a block of items, then over the
// blocks.
using ConvGradientBF16 = void (*)(const ConvShape& shape, std::int64_t batch, const BF16* x,
                                  const BF16* dz, void* scratch, float* dw, float* db,
                                  bool accumulate);
// Scratch size in bytes.
std::size_t ConvGradientScratch(const ConvShape& shape);

// The implementation for a level; nullptr below kAvx512Bf16, which has no bf16 products.
ConvGradientBF16 ConvGradientBF16For(CpuLevel level);

}  // namespace troop
