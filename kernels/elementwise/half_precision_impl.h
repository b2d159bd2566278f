#pragma once

#pragma GCC optimize("O3")
#include "kernels/elementwise/half_precision.h"

// Loops of half_precision.h, compiled once per instruction set; TROOP_ISA names the copy. Loop
// bodies have no branches, so that the compiler vectorizes them.
namespace troop::TROOP_ISA {
extern const HalfKernels kHalfKernels;
namespace {

// Bit patterns of f32.
inline std::uint32_t Bits(float x) { return __builtin_bit_cast(std::uint32_t, x); }
inline float Number(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

// below < bound ? a : b, as a mask, since a conditional could compile to a branch. REQUIRES: below,
// bound < 2^31.
inline std::uint32_t Choose(std::uint32_t below, std::uint32_t bound, std::uint32_t a,
                            std::uint32_t b) {
  const std::uint32_t mask = 0u - ((below - bound) >> 31);
  return (a & mask) | (b & ~mask);
}

// binary16: 5 bits of exponent with bias 15 (f32: 127, a difference of 112), 10 bits of mantissa.
struct F16Format {
  static constexpr float kMax = 65504;
  static constexpr std::uint16_t kExponent = 0x7c00;
  // Rounds |x| <= kMax, given as f32 bits. Below 2^-14 the result is a denormal, a multiple of
  // 2^-24: adding 0.5 makes the f32 addition round to such a multiple.
  static std::uint32_t Round(std::uint32_t magnitude) {
    // 0x3f000000 is 0.5; what the sum exceeds it by is the denormal.
    const std::uint32_t small = Bits(Number(magnitude) + 0.5f) - 0x3f000000u;
    const std::uint32_t normal =
        (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - (112u << 23)) >> 13;
    return Choose(magnitude, 0x38800000u, small, normal);
  }
  static float Read(std::uint32_t half) {  // REQUIRES: finite
    const std::uint32_t magnitude = half & 0x7fffu;
    const std::uint32_t small = Bits(float(std::int32_t(magnitude)) * 0x1p-24f);  // exact
    const std::uint32_t normal = (magnitude << 13) + (112u << 23);
    return Number(((half & 0x8000u) << 16) | Choose(magnitude, 0x0400u, small, normal));
  }
};

// bfloat16: the upper half of an f32.
struct Bf16Format {
  static constexpr float kMax = 0x1.fep127f;
  static constexpr std::uint16_t kExponent = 0x7f80;
  // Rounds to nearest even: adds just under half a unit, plus the lowest bit of the result.
  static std::uint32_t Round(std::uint32_t magnitude) {
    return (magnitude + 0x7fffu + ((magnitude >> 16) & 1u)) >> 16;
  }
  static float Read(std::uint32_t half) { return Number(half << 16); }
};

// Clamping to kMax precedes rounding, so the result is never infinite.
template <class Format>
void EncodeAs(std::int64_t n, const float* __restrict gradient, float* __restrict residual,
              std::uint16_t* __restrict bits) {
  const std::uint32_t most = Bits(Format::kMax);
  for (std::int64_t i = 0; i < n; ++i) {
    const float whole = residual[i] + gradient[i];
    const std::uint32_t magnitude = Bits(whole) & 0x7fffffffu;
    const std::uint32_t half =
        ((Bits(whole) >> 16) & 0x8000u) | Format::Round(magnitude < most ? magnitude : most);
    bits[i] = std::uint16_t(half);
    residual[i] = whole - Format::Read(half);
  }
}

// Product and sum round separately at all levels.
template <class Format, bool adds>
void SumAs(std::int64_t n, float weight, const std::uint16_t* __restrict bits,
           float* __restrict sum) {
  for (std::int64_t i = 0; i < n; ++i) {
    const float part = weight * Format::Read(bits[i]);
    sum[i] = adds ? sum[i] + part : part;
  }
}

// Tests whole blocks, then searches the first failing one. Inf and NaN: all exponent bits set.
template <class Format>
std::int64_t FirstUnfiniteAs(std::int64_t n, const std::uint16_t* bits) {
  constexpr std::uint16_t kExponent = Format::kExponent;
  constexpr std::int64_t kBlock = 128;  // a constant count, so that the compiler vectorizes
  std::int64_t begin = 0;
  for (; n - begin >= kBlock; begin += kBlock) {
    std::uint16_t bad = 0;
    for (std::int64_t i = begin; i < begin + kBlock; ++i)
      bad = std::uint16_t(bad | ((bits[i] & kExponent) == kExponent));
    if (bad != 0) break;
  }
  while (begin < n && (bits[begin] & kExponent) != kExponent) ++begin;
  return begin;
}

// Dispatch on the format.
void Encode(HalfFormat format, std::int64_t n, const float* gradient, float* residual,
            std::uint16_t* bits) {
  if (format == HalfFormat::kF16) return EncodeAs<F16Format>(n, gradient, residual, bits);
  EncodeAs<Bf16Format>(n, gradient, residual, bits);
}

template <bool adds>
void Sum(HalfFormat format, std::int64_t n, float weight, const std::uint16_t* bits, float* sum) {
  if (format == HalfFormat::kF16) return SumAs<F16Format, adds>(n, weight, bits, sum);
  SumAs<Bf16Format, adds>(n, weight, bits, sum);
}

std::int64_t FirstNonFinite(HalfFormat format, std::int64_t n, const std::uint16_t* bits) {
  return format == HalfFormat::kF16 ? FirstUnfiniteAs<F16Format>(n, bits)
                                    : FirstUnfiniteAs<Bf16Format>(n, bits);
}

}  // namespace

const HalfKernels kHalfKernels = {Encode, Sum<false>, Sum<true>, FirstNonFinite};

}  // namespace troop::TROOP_ISA
