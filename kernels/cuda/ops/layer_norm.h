#pragma once

#include <cstdint>

#include "core/tensor/dtype.h"
#include "kernels/cuda/runtime/device.h"
#include "kernels/transformer/layer_norm_gelu.h"

// GPU counterpart of TransformerKernels::layer_norm (Ba et al. 2016). x, y, dy, dx: [rows, n],
// dense, all kF32 or all kBF16; gamma, beta, mean, rstd and the gradients of parameters are f32.
// Computed in f32; the order of sums depends only on the sizes. Rows of at most 1,024 elements are
// read once and kept in registers if their size and the arrays are multiples of 16 bytes; other
// rows are read several times.
namespace troop::cuda {

// Arguments of LayerNorm.
struct LayerNormArgs {
  LayerNormShape shape;
  DType dtype = DType::kF32;     // of x and y
  const void* x = nullptr;       // [rows, n]
  const float* gamma = nullptr;  // [n]
  const float* beta = nullptr;   // [n]
  void* y = nullptr;             // [rows, n], overwritten; may be x
  float* mean = nullptr;         // [rows], overwritten
  float* rstd = nullptr;         // [rows], overwritten: 1 / standard deviation
};
// y = gamma (x - mean) rstd + beta.
void LayerNorm(Stream& stream, const LayerNormArgs& args);

// Number of floats of the workspace of LayerNormBackward.
std::int64_t LayerNormWorkspace(std::int64_t n);

// Arguments of LayerNormBackward.
struct LayerNormBackwardArgs {
  LayerNormShape shape;
  DType dtype = DType::kF32;     // of x, dy and dx
  const void* x = nullptr;       // [rows, n], input of LayerNorm
  const float* gamma = nullptr;  // [n]
  const float* mean = nullptr;   // [rows], from LayerNorm
  const float* rstd = nullptr;   // [rows], from LayerNorm
  const void* dy = nullptr;      // [rows, n]
  void* dx = nullptr;            // [rows, n], overwritten; may be dy
  float* dgamma = nullptr;       // [n], added to
  float* dbeta = nullptr;        // [n], added to
  float* workspace = nullptr;    // LayerNormWorkspace(n) floats, overwritten
};
// Gradients of LayerNorm.
void LayerNormBackward(Stream& stream, const LayerNormBackwardArgs& args);

}  // namespace troop::cuda
