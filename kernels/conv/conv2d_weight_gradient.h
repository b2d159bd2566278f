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

// Arguments of ConvGradientBF16. Only `scratch` has an alignment requirement.
struct ConvGradientArgs {
  ConvShape shape;
  std::int64_t batch = 0;
  const BF16* x = nullptr;   // [batch, height, width, channels]
  const BF16* dz = nullptr;  // [batch, out_height, out_width, filters]
  void* scratch = nullptr;   // ConvGradientScratch bytes, 64-byte aligned
  float* dw = nullptr;       // [filters, kernel, kernel, channels]
  float* db = nullptr;       // [filters]
  bool accumulate = false;   // true: adds to dw and db, which are overwritten otherwise
};
// dw (+)= dz ⊗ x, db (+)= Σ dz. Products are exact. Sums are f32, first within a block of items,
// then over the blocks.
using ConvGradientBF16 = void (*)(const ConvGradientArgs& args);
// Scratch size in bytes.
std::size_t ConvGradientScratch(const ConvShape& shape);

// The implementation for a level; nullptr below kAvx512Bf16, which has no bf16 products.
ConvGradientBF16 ConvGradientBF16For(CpuLevel level);

}  // namespace troop
