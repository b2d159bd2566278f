#pragma once

#include <cstdint>

namespace troop {

// IEEE 754 binary16. Numbers to send; nothing computes with them.
struct F16 {
  std::uint16_t bits = 0;
};
inline constexpr float kF16Max = 65504;

// Round to nearest even; infinity from 65520 on, NaN stays NaN.
inline F16 ToF16(float x) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  bits &= 0x7fffffffu;
  std::uint32_t half;
  if (bits >= 0x47800000u) {  // 65536 and above
    half = bits > 0x7f800000u ? 0x7e00u : 0x7c00u;
  } else if (bits < 0x38800000u) {  // below 2^-14: the sum with 0.5 rounds at 2^-24
    float magnitude;
    __builtin_memcpy(&magnitude, &bits, sizeof magnitude);
    magnitude += 0.5f;
    __builtin_memcpy(&half, &magnitude, sizeof half);
    half -= 0x3f000000u;
  } else {
    half = (bits + 0xfffu + ((bits >> 13) & 1u) - (112u << 23)) >> 13;
  }
  return {std::uint16_t(sign | half)};
}

inline float ToF32(F16 x) {
  const std::uint32_t sign = std::uint32_t(x.bits & 0x8000u) << 16;
  const std::uint32_t exponent = (x.bits >> 10) & 0x1fu, mantissa = x.bits & 0x3ffu;
  std::uint32_t bits;
  if (exponent == 0) {
    const float value = float(mantissa) * 0x1p-24f;  // exact
    __builtin_memcpy(&bits, &value, sizeof bits);
  } else {
    bits = ((exponent == 0x1f ? 0xffu : exponent + 112) << 23) | (mantissa << 13);
  }
  bits |= sign;
  float out;
  __builtin_memcpy(&out, &bits, sizeof out);
  return out;
}

}  // namespace troop
