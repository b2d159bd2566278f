#pragma once

#include <cstdint>

#include "kernels/simd/cpu_features.h"

namespace troop {

// What numbers of 16 bits are: IEEE 754 binary16, or bfloat16 (as BF16 of core/tensor/dtype.h).
enum class HalfFormat : std::uint8_t { kF16 = 0, kBf16 = 1 };

// Passes over gradients that are sent in 16 bits. [n] each, nothing overlaps. All levels give equal
// bytes: every number is one correctly rounded operation after the other.
struct HalfKernels {
  // residual += gradient; bits: the nearest number (ties to even), of what lies beyond all finite
  // ones the last of those; residual -= that number. gradient and residual: finite.
  void (*encode)(HalfFormat format, std::int64_t n, const float* gradient, float* residual,
                 std::uint16_t* bits);
  // sum = weight · number, and sum += weight · number.
  void (*write)(HalfFormat format, std::int64_t n, float weight, const std::uint16_t* bits,
                float* sum);
  void (*add)(HalfFormat format, std::int64_t n, float weight, const std::uint16_t* bits,
              float* sum);
  // The first that is infinite or NaN; n: none is.
  std::int64_t (*first_unfinite)(HalfFormat format, std::int64_t n, const std::uint16_t* bits);
};
const HalfKernels& HalfKernelsFor(CpuLevel level);

}  // namespace troop
