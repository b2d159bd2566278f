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

// y = gamma (x - mean) rstd + beta; also writes mean [rows] and rstd [rows]. y may be x.
void LayerNorm(Stream& stream, const LayerNormShape& shape, DType dtype, const void* x,
               const float* gamma, const float* beta, void* y, float* mean, float* rstd);

// Number of floats of the workspace of LayerNormBackward.
std::int64_t LayerNormWorkspace(std::int64_t n);

// Overwrites dx, which may be dy, and adds to dgamma and dbeta [n]. workspace:
// LayerNormWorkspace(n) floats, overwritten.
void LayerNormBackward(Stream& stream, const LayerNormShape& shape, DType dtype, const void* x,
                       const float* gamma, const float* mean, const float* rstd, const void* dy,
                       void* dx, float* dgamma, float* dbeta, float* workspace);

}  // namespace troop::cuda
