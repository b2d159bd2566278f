#pragma once

#include <cstdint>

#include "core/tensor/dtype.h"
#include "kernels/cuda/runtime/device.h"
#include "kernels/elementwise/activation.h"
#include "kernels/transformer/layer_norm_gelu.h"

// Elementwise operations between products. Arrays are dense device memory, 16-byte aligned.
// Asynchronous on `stream`. O(n), one pass over memory.
namespace troop::cuda {

// dz = dy · activation'(z), from y = activation(z): relu' = [y > 0], tanh' = 1 - y². All arrays [n]
// of `dtype` (kF32 or kBF16); dz may be dy.
void ActivationBackward(Stream& stream, Activation activation, DType dtype, std::int64_t n,
                        const void* y, const void* dy, void* dz);

// Gelu: y = gelu(z), y may be z. GeluBackward: dz = dy gelu'(z), dz may be dy. All arrays [n] of
// `dtype`, computed in f32.
void Gelu(Stream& stream, GeluForm form, DType dtype, std::int64_t n, const void* z, void* y);
void GeluBackward(Stream& stream, GeluForm form, DType dtype, std::int64_t n, const void* z,
                  const void* dy, void* dz);

// to [n] = scale · from [n]. from: kU8, kF32 or kBF16, any alignment; to: kF32, or kBF16 rounded to
// nearest even.
void ConvertScaled(Stream& stream, std::int64_t n, const void* from, DType from_dtype, float scale,
                   void* to, DType to_dtype);

}  // namespace troop::cuda
