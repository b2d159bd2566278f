#pragma once

#include <cstdint>

#include "core/tensor/dtype.h"
#include "kernels/cuda/runtime/device.h"
#include "kernels/elementwise/activation.h"
#include "kernels/transformer/layer_norm_gelu.h"

// Elementwise steps between products. Arrays are dense device memory, 16-byte aligned. O(n), one
// pass.
namespace troop::cuda {

// dz = dy · activation'(z), from y = activation(z): relu' = [y > 0], tanh' = 1 - y². All of `dtype`
// (kF32 or kBF16); dz may be dy. [n]
void ActivationBackward(Stream& stream, Activation activation, DType dtype, std::int64_t n,
                        const void* y, const void* dy, void* dz);

// y = gelu(z), and dz = dy gelu'(z); y may be z, dz may be dy. All of `dtype`, f32 inside. [n]
void Gelu(Stream& stream, GeluForm form, DType dtype, std::int64_t n, const void* z, void* y);
void GeluBackward(Stream& stream, GeluForm form, DType dtype, std::int64_t n, const void* z,
                  const void* dy, void* dz);

// to = scale · from. from: kU8, kF32 or kBF16; to: kF32 or kBF16, rounded to nearest even. [n]
void ConvertScaled(Stream& stream, std::int64_t n, const void* from, DType from_dtype, float scale,
                   void* to, DType to_dtype);

}  // namespace troop::cuda
