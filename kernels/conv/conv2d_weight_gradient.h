#pragma once

#include <cstddef>
#include <cstdint>

#include "core/tensor/tensor.h"
#include "kernels/conv/conv2d.h"
#include "kernels/simd/cpu_features.h"

// The weight gradient of a convolution in bf16, in the plain layout the weights are trained in. A
// library turns its operands for every call and gives the gradient in a layout of its own: at
// Nature's first layer and 32 items, 1.0 ms for what the processor multiplies in 0.4.
namespace troop {

// dw [filters, kernel, kernel, channels] f32 (+)= dz ⊗ x, db [filters] f32 (+)= Σ dz; shapes as in
// conv.h. scratch: ConvGradientScratch bytes, 64-byte aligned; the others as they come. Products
// are exact, sums are f32, first within some items, then over them.
using ConvGradientBF16 = void (*)(const ConvShape& shape, std::int64_t batch, const BF16* x,
                                  const BF16* dz, void* scratch, float* dw, float* db,
                                  bool accumulate);
std::size_t ConvGradientScratch(const ConvShape& shape);

// nullptr below kAvx512Bf16: there the processor has no such products.
ConvGradientBF16 ConvGradientBF16For(CpuLevel level);

}  // namespace troop
