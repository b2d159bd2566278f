#pragma once

#include <cstdint>

#include "core/tensor/dtype.h"
#include "kernels/cuda/runtime/device.h"
#include "kernels/elementwise/activation.h"
#include "kernels/transformer/layer_norm_gelu.h"

// Elementwise operations between products. Arrays are dense device memory, 16-byte aligned.
// Asynchronous on `stream`. O(n), one pass over memory.
namespace troop::cuda {

// Arguments of ActivationBackward.
struct ActivationBackwardArgs {
  Activation activation = Activation::kNone;
  DType dtype = DType::kF32;  // of y, dy and dz: kF32 or kBF16
  std::int64_t n = 0;
  const void* y = nullptr;   // [n], result of the activation
  const void* dy = nullptr;  // [n]
  void* dz = nullptr;        // [n], overwritten; may be dy
};
// dz = dy · activation'(z), from y = activation(z): relu' = [y > 0], tanh' = 1 - y².
void ActivationBackward(Stream& stream, const ActivationBackwardArgs& args);

// Arguments of Gelu.
struct GeluArgs {
  GeluForm form = GeluForm::kErf;
  DType dtype = DType::kF32;  // of z and y: kF32 or kBF16
  std::int64_t n = 0;
  const void* z = nullptr;  // [n]
  void* y = nullptr;        // [n], overwritten; may be z
};
// y = gelu(z), computed in f32.
void Gelu(Stream& stream, const GeluArgs& args);

// Arguments of GeluBackward.
struct GeluBackwardArgs {
  GeluForm form = GeluForm::kErf;
  DType dtype = DType::kF32;  // of z, dy and dz: kF32 or kBF16
  std::int64_t n = 0;
  const void* z = nullptr;   // [n], input of Gelu
  const void* dy = nullptr;  // [n]
  void* dz = nullptr;        // [n], overwritten; may be dy
};
// dz = dy gelu'(z), computed in f32.
void GeluBackward(Stream& stream, const GeluBackwardArgs& args);

// Arguments of ConvertScaled. Arrays may have any alignment.
struct ConvertScaledArgs {
  std::int64_t n = 0;
  const void* from = nullptr;      // [n]
  DType from_dtype = DType::kF32;  // kU8, kF32 or kBF16
  float scale = 1;
  void* to = nullptr;            // [n], overwritten
  DType to_dtype = DType::kF32;  // kF32, or kBF16 rounded to nearest even
};
// to = scale · from.
void ConvertScaled(Stream& stream, const ConvertScaledArgs& args);

}  // namespace troop::cuda
