#pragma once

#include "kernels/elementwise/half_precision.h"

// The loops of halves.h, compiled once per instruction set: TROOP_HALVES_NAMESPACE names the copy.
// No branch within a loop: the compiler makes vectors of them.
namespace troop::TROOP_HALVES_NAMESPACE {
extern const HalfKernels kKernels;
namespace {

inline std::uint32_t Bits(float x) { return __builtin_bit_cast(std::uint32_t, x); }
inline float Number(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

// below < bound ? a : b, without what could become a branch. below, bound: less than 2^31.
inline std::uint32_t Choose(std::uint32_t below, std::uint32_t bound, std::uint32_t a,
                            std::uint32_t b) {
  const std::uint32_t mask = 0u - ((below - bound) >> 31);
  return (a & mask) | (b & ~mask);
}

struct F16Format {
  static constexpr float kMax = 65504;
  static constexpr std::uint16_t kExponent = 0x7c00;
  // Of |x| <= kMax, by its bits. Below 2^-14 the sum with 0.5 rounds at 2^-24.
  static std::uint32_t Round(std::uint32_t magnitude) {
    const std::uint32_t small = Bits(Number(magnitude) + 0.5f) - 0x3f000000u;
    const std::uint32_t normal =
        (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - (112u << 23)) >> 13;
    return Choose(magnitude, 0x38800000u, small, normal);
  }
  static float Read(std::uint32_t half) {  // finite
    const std::uint32_t magnitude = half & 0x7fffu;
    const std::uint32_t small = Bits(float(std::int32_t(magnitude)) * 0x1p-24f);  // exact
    const std::uint32_t normal = (magnitude << 13) + (112u << 23);
    return Number(((half & 0x8000u) << 16) | Choose(magnitude, 0x0400u, small, normal));
  }
};

struct Bf16Format {
  static constexpr float kMax = 0x1.fep127f;
  static constexpr std::uint16_t kExponent = 0x7f80;
  static std::uint32_t Round(std::uint32_t magnitude) {
    return (magnitude + 0x7fffu + ((magnitude >> 16) & 1u)) >> 16;
  }
  static float Read(std::uint32_t half) { return Number(half << 16); }
};

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

template <class Format, bool adds>
void SumAs(std::int64_t n, float weight, const std::uint16_t* __restrict bits,
           float* __restrict sum) {
  for (std::int64_t i = 0; i < n; ++i) {
    const float part = weight * Format::Read(bits[i]);
    sum[i] = adds ? sum[i] + part : part;
  }
}

template <class Format>
std::int64_t FirstUnfiniteAs(std::int64_t n, const std::uint16_t* bits) {
  constexpr std::uint16_t kExponent = Format::kExponent;
  constexpr std::int64_t kBlock = 128;  // a fixed count: what the compiler turns into vectors
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

std::int64_t FirstUnfinite(HalfFormat format, std::int64_t n, const std::uint16_t* bits) {
  return format == HalfFormat::kF16 ? FirstUnfiniteAs<F16Format>(n, bits)
                                    : FirstUnfiniteAs<Bf16Format>(n, bits);
}

}  // namespace

const HalfKernels kKernels = {Encode, Sum<false>, Sum<true>, FirstUnfinite};

}  // namespace troop::TROOP_HALVES_NAMESPACE
