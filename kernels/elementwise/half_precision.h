#pragma once

#include <cstdint>

#include "kernels/simd/cpu_features.h"

namespace troop {

// 16-bit floating-point formats: IEEE 754 binary16, or bfloat16 (as BF16 of core/tensor/dtype.h).
enum class HalfFormat : std::uint8_t { kF16 = 0, kBf16 = 1 };

// Encoding and decoding of gradients that are sent in 16 bits, with error feedback (`residual`).
// [n] each, without overlap. All levels give equal bytes: each value is a fixed sequence of
// correctly rounded operations.
struct HalfKernels {
  // residual += gradient; bits = residual rounded to the nearest 16-bit value (ties to even) and
  // clamped to the largest finite one; residual -= that value. REQUIRES: gradient and residual are
  // finite.
  void (*encode)(HalfFormat format, std::int64_t n, const float* gradient, float* residual,
                 std::uint16_t* bits);
  // write: sum = weight · value. add: sum += weight · value.
  void (*write)(HalfFormat format, std::int64_t n, float weight, const std::uint16_t* bits,
                float* sum);
  void (*add)(HalfFormat format, std::int64_t n, float weight, const std::uint16_t* bits,
              float* sum);
  // Index of the first infinity or NaN; n if there is none.
  std::int64_t (*first_unfinite)(HalfFormat format, std::int64_t n, const std::uint16_t* bits);
};
const HalfKernels& HalfKernelsFor(CpuLevel level);

}  // namespace troop
