#pragma once

#include "kernels/cuda/runtime/device_code.h"

// Access to f32, bf16 and u8 elements in memory as floats in registers. Only for .cu files.
namespace troop::cuda {

// One element.
TROOP_DEVICE float Get(const float* x) { return *x; }
TROOP_DEVICE float Get(const BF16* x) { return ToFloat(*x); }
TROOP_DEVICE float Get(const std::uint8_t* x) { return float(*x); }
// Rounds to nearest even for bf16.
TROOP_DEVICE void Put(float* to, float x) { *to = x; }
TROOP_DEVICE void Put(BF16* to, float x) { *to = ToBF16(x); }

// Elements in 16 bytes, the widest access.
template <class T>
inline constexpr int kVector = int(16 / sizeof(T));

// N contiguous elements, N a multiple of kVector<T>. REQUIRES: 16-byte alignment.
template <int N>
TROOP_DEVICE void GetVector(const float* from, float (&to)[N]) {
  TROOP_UNROLL for (int i = 0; i < N; i += 4) {
    const float4 four = *reinterpret_cast<const float4*>(from + i);
    to[i] = four.x, to[i + 1] = four.y, to[i + 2] = four.z, to[i + 3] = four.w;
  }
}
template <int N>
TROOP_DEVICE void GetVector(const BF16* from, float (&to)[N]) {
  TROOP_UNROLL for (int i = 0; i < N; i += 8) {
    const uint4 eight = *reinterpret_cast<const uint4*>(from + i);
    const unsigned pairs[4] = {eight.x, eight.y, eight.z, eight.w};
    TROOP_UNROLL for (int j = 0; j < 4; ++j) {
      // bf16 is the upper half of an f32.
      to[i + 2 * j] = __uint_as_float(pairs[j] << 16);
      to[i + 2 * j + 1] = __uint_as_float(pairs[j] & 0xffff0000u);
    }
  }
}
// Eight bytes, 8-byte aligned.
TROOP_DEVICE void GetVector(const std::uint8_t* from, float (&to)[8]) {
  const uint2 eight = *reinterpret_cast<const uint2*>(from);
  TROOP_UNROLL for (int i = 0; i < 4; ++i) {
    to[i] = float(eight.x >> (8 * i) & 0xff);
    to[i + 4] = float(eight.y >> (8 * i) & 0xff);
  }
}
// Stores N contiguous elements, rounding to nearest even for bf16. REQUIRES: 16-byte alignment.
template <int N>
TROOP_DEVICE void PutVector(float* to, const float (&from)[N]) {
  TROOP_UNROLL for (int i = 0; i < N; i += 4) {
    *reinterpret_cast<float4*>(to + i) =
        make_float4(from[i], from[i + 1], from[i + 2], from[i + 3]);
  }
}
template <int N>
TROOP_DEVICE void PutVector(BF16* to, const float (&from)[N]) {
  TROOP_UNROLL for (int i = 0; i < N; i += 8) {
    *reinterpret_cast<uint4*>(to + i) =
        make_uint4(ToBF16x2(from[i], from[i + 1]), ToBF16x2(from[i + 2], from[i + 3]),
                   ToBF16x2(from[i + 4], from[i + 5]), ToBF16x2(from[i + 6], from[i + 7]));
  }
}

}  // namespace troop::cuda
