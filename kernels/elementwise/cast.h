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

// y[i] = scale * x[i]. x: u8, f32 or bf16; y: f32 or bf16; [n] each, without overlap.
void ConvertScaled(std::int64_t n, const void* x, DType x_dtype, float scale, void* y,
                   DType y_dtype);
// y[i] = f(x[i]); x and y are both f32 or both bf16, and y may be x. tanh is std::tanh. REQUIRES:
// `activation` is not kNone.
void ActivationForward(Activation activation, std::int64_t n, const void* x, void* y, DType dtype);
// dz[i] = dy[i] · f'(z[i]), from y = f(z): relu' = [y > 0], tanh' = 1 - y². y and dy have `dtype`,
// dz has `dz_dtype`; each is f32 or bf16. dz may be dy if the types are equal. With kNone, y may be
// nullptr.
void ActivationBackward(Activation activation, std::int64_t n, const void* y, const void* dy,
                        DType dtype, void* dz, DType dz_dtype);

}  // namespace troop
