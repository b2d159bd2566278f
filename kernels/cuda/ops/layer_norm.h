#pragma once

#include <cstdint>

#include "core/tensor/dtype.h"
#include "kernels/cuda/runtime/device.h"
#include "kernels/transformer/layer_norm_gelu.h"

// TransformerKernels' layer_norm (Ba et al. 2016) on the device. x, y, dy, dx [rows, n], dense:
// all kF32 or all kBF16; gamma, beta, mean, rstd and their gradients f32. Arithmetic and sums in
// f32, in an order that follows from the sizes alone. Rows of up to 1,024 numbers that are
// multiples of 16 bytes, of arrays at such multiples, are read once and kept in registers; others
// are read several times.
namespace troop::cuda {

// y = gamma (x - mean) rstd + beta, mean [rows], rstd [rows]. y may be x.
void LayerNorm(Stream& stream, const LayerNormShape& shape, DType dtype, const void* x,
               const float* gamma, const float* beta, void* y, float* mean, float* rstd);

// Floats that LayerNormBackward works in.
std::int64_t LayerNormWorkspace(std::int64_t n);

// dx (which may be dy), and dgamma, dbeta [n], added into. workspace: LayerNormWorkspace(n) floats,
// overwritten.
void LayerNormBackward(Stream& stream, const LayerNormShape& shape, DType dtype, const void* x,
                       const float* gamma, const float* mean, const float* rstd, const void* dy,
                       void* dx, float* dgamma, float* dbeta, float* workspace);

}  // namespace troop::cuda
