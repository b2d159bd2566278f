#pragma once

#include <bit>
#include <cstdint>

#include "kernels/cuda/runtime/device_code.h"

namespace troop::cuda {

// Division by a run-time constant of a kernel, as a multiplication and a shift instead of some
// twenty instructions (Granlund and Montgomery 1994, theorem 4.2). REQUIRES: 1 <= divisor < 2^31;
// dividends: 0 <= n < 2^31. For .cu files.
class Divisor {
 public:
  // multiplier = ⌈2^(31 + ⌈log2 d⌉) / d⌉, which fits 32 bits.
  explicit Divisor(int divisor) : divisor_(divisor), shift_(std::bit_width(unsigned(divisor) - 1)) {
    const auto d = std::uint64_t(divisor);
    multiplier_ = std::uint32_t(((std::uint64_t(1) << (31 + shift_)) + d - 1) / d);
  }
  TROOP_HOST_DEVICE int Quotient(int n) const {
    // 2 n, so that the upper half of the product is the result, also for divisor 1.
    const auto doubled = std::uint64_t(2 * unsigned(n));
    return int(std::uint32_t(doubled * multiplier_ >> 32) >> shift_);
  }
  TROOP_HOST_DEVICE int Remainder(int n) const { return n - Quotient(n) * divisor_; }
  TROOP_HOST_DEVICE int divisor() const { return divisor_; }

 private:
  int divisor_, shift_;
  std::uint32_t multiplier_;
};

}  // namespace troop::cuda
