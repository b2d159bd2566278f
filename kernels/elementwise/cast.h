#pragma once

#include <cstdint>

#include "core/tensor/tensor.h"
#include "kernels/elementwise/activation.h"

// Elementwise passes between layers: conversions and activations. Each makes one pass over memory,
// with the fastest instruction set of this machine, selected once per process. All instruction sets
// give equal bytes: each element is a fixed sequence of correctly rounded operations (bf16: round
// to nearest even, NaN stays NaN).
namespace troop {

// Exact.
inline float ToF32(BF16 x) {
  const std::uint32_t bits = std::uint32_t(x.bits) << 16;
  float out;
  __builtin_memcpy(&out, &bits, sizeof out);
  return out;
}
// Rounds to nearest even.
inline BF16 ToBF16(float x) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  // A NaN is truncated with its quiet bit set: rounding its payload could give infinity.
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {std::uint16_t((bits >> 16) | 0x40u)};
  return {std::uint16_t((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

// Arguments of ConvertScaled. x and y do not overlap.
struct ConvertScaledArgs {
  std::int64_t n = 0;
  const void* x = nullptr;  // [n] of x_dtype: u8, f32 or bf16
  DType x_dtype = DType::kF32;
  float scale = 1;
  void* y = nullptr;  // [n] of y_dtype: f32 or bf16; overwritten
  DType y_dtype = DType::kF32;
};
// y[i] = scale * x[i].
void ConvertScaled(const ConvertScaledArgs& args);
// y[i] = f(x[i]); x and y are both f32 or both bf16, and y may be x. tanh is std::tanh. REQUIRES:
// `activation` is not kNone.
void ActivationForward(Activation activation, std::int64_t n, const void* x, void* y, DType dtype);

// Arguments of ActivationBackward. Both types are f32 or bf16.
struct ActivationBackwardArgs {
  Activation activation = Activation::kNone;
  std::int64_t n = 0;
  const void* y = nullptr;   // [n] of dtype, the result of the activation; kNone: may be nullptr
  const void* dy = nullptr;  // [n] of dtype
  DType dtype = DType::kF32;
  void* dz = nullptr;  // [n] of dz_dtype, overwritten; may be y or dy if the types are equal
  DType dz_dtype = DType::kF32;
};
// dz[i] = dy[i] · f'(z[i]), from y = f(z): relu' = [y > 0], tanh' = 1 - y².
void ActivationBackward(const ActivationBackwardArgs& args);

}  // namespace troop
