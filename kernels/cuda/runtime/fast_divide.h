#pragma once

#include <bit>
#include <cstdint>

#include "kernels/cuda/runtime/device_code.h"

namespace troop::cuda {

// Quotients by a number that a kernel's caller knows and its compiler does not, by a product and a
// shift where a division takes some twenty instructions (Granlund and Montgomery 1994, theorem
// 4.2). REQUIRES: 1 <= divisor < 2^31; what is divided: 0 <= n < 2^31. For .cu files.
class Divisor {
 public:
  explicit Divisor(int divisor) : divisor_(divisor), shift_(std::bit_width(unsigned(divisor) - 1)) {
    const auto d = std::uint64_t(divisor);
    multiplier_ = std::uint32_t(((std::uint64_t(1) << (31 + shift_)) + d - 1) / d);
  }
  TROOP_HOST_DEVICE int Quotient(int n) const {
    // 2 n: so that what is lost is the product's lower half, even for divisor 1.
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
