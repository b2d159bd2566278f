#pragma once

#if defined(__AVX2__)
#pragma GCC optimize("O3")
#endif
#include "kernels/elementwise/cast_table.h"

// Loops of cast.h, compiled once per instruction set. TROOP_ISA names the copy:
// otherwise the linker could use an inline function of the AVX-512 copy on a machine without
// AVX-512. For the same reason the conversions of cast.h are repeated here.
namespace troop::TROOP_ISA {
namespace {

// Element access as f32; Store rounds to the element type as ToBF16 does.
inline float Load(const float* p) { return *p; }
inline float Load(const std::uint8_t* p) { return float(*p); }
inline float Load(const BF16* p) {
  const std::uint32_t bits = std::uint32_t(p->bits) << 16;
  return __builtin_bit_cast(float, bits);
}
inline void Store(float* p, float x) { *p = x; }
// Branch-free ToBF16: both results are computed and one is selected.
inline void Store(BF16* p, float x) {
  const auto bits = __builtin_bit_cast(std::uint32_t, x);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t nan = (bits >> 16) | 0x40u;
  p->bits = std::uint16_t((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

// The loops below take void pointers, so that the dispatch on types stays in this file.
template <class X, class Y>
void Scale(std::int64_t n, const void* x_in, float scale, void* y_out) {
  const auto* __restrict x = static_cast<const X*>(x_in);
  auto* __restrict y = static_cast<Y*>(y_out);
  for (std::int64_t i = 0; i < n; ++i) Store(y + i, scale * Load(x + i));
}

// Dispatch on the type of y.
template <class X>
void ScaleTo(std::int64_t n, const void* x, float scale, void* y, DType y_dtype) {
  if (y_dtype == DType::kF32) return Scale<X, float>(n, x, scale, y);
  Scale<X, BF16>(n, x, scale, y);
}

// Dispatch on the type of x, then on that of y.
void ConvertScaled(const ConvertScaledArgs& args) {
  const auto& [n, x, x_dtype, scale, y, y_dtype] = args;
  if (x_dtype == DType::kU8) return ScaleTo<std::uint8_t>(n, x, scale, y, y_dtype);
  if (x_dtype == DType::kF32) return ScaleTo<float>(n, x, scale, y, y_dtype);
  ScaleTo<BF16>(n, x, scale, y, y_dtype);
}

// In place: ivdep allows vectorization although x and y may be the same array.
template <class T>
void Relu(std::int64_t n, const void* x_in, void* y_out) {
  const auto* x = static_cast<const T*>(x_in);
  auto* y = static_cast<T*>(y_out);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const float v = Load(x + i);
    Store(y + i, v > 0 ? v : 0.0f);
  }
}

void ReluForward(std::int64_t n, const void* x, void* y, DType dtype) {
  if (dtype == DType::kF32) return Relu<float>(n, x, y);
  Relu<BF16>(n, x, y);
}

// T: type of y and dy; Z: type of dz. One loop per activation, so that each is vectorized; dz may
// be dy or y, as in Relu.
template <class T, class Z>
void Gradient(Activation activation, std::int64_t n, const void* y_in, const void* dy_in,
              void* dz_out) {
  const auto* y = static_cast<const T*>(y_in);
  const auto* dy = static_cast<const T*>(dy_in);
  auto* dz = static_cast<Z*>(dz_out);
  // Only a conversion; y may be nullptr.
  if (activation == Activation::kNone) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) Store(dz + i, Load(dy + i));
  } else if (activation == Activation::kRelu) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) {
      const float d = Load(dy + i);
      Store(dz + i, Load(y + i) > 0 ? d : 0.0f);
    }
  } else {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) {
      const float v = Load(y + i);
      Store(dz + i, Load(dy + i) * (1.0f - v * v));
    }
  }
}

// The four combinations of input and output types.
void ActivationBackward(const ActivationBackwardArgs& args) {
  const auto& [activation, n, y, dy, dtype, dz, dz_dtype] = args;
  if (dtype == DType::kF32 && dz_dtype == DType::kF32)
    return Gradient<float, float>(activation, n, y, dy, dz);
  if (dtype == DType::kF32) return Gradient<float, BF16>(activation, n, y, dy, dz);
  if (dz_dtype == DType::kF32) return Gradient<BF16, float>(activation, n, y, dy, dz);
  Gradient<BF16, BF16>(activation, n, y, dy, dz);
}

}  // namespace

// tanh forward is not here: it uses the C library (cast.cc).
const ConvertKernels kConvertKernels = {ConvertScaled, ReluForward, ActivationBackward};

}  // namespace troop::TROOP_ISA
