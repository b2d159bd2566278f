#include "kernels/cuda/runtime/fast_divide.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

namespace troop::cuda {
namespace {

TEST(DivisorTest, QuotientsMatchDivision) {
  constexpr int kMost = 0x7fffffff;
  std::mt19937 random(7);
  std::vector<int> divisors = {1, 2, 3, 5, 7, 64, 641, 65535, 65536, kMost / 2, kMost - 1, kMost};
  for (int i = 0; i < 2000; ++i) divisors.push_back(int(random() >> (1 + random() % 30)) + 1);
  for (const int d : divisors) {
    const Divisor divisor(d);
    const auto check = [&](std::int64_t n) {
      if (n < 0 || n > kMost) return;
      ASSERT_EQ(divisor.Quotient(int(n)), int(n) / d) << n << " / " << d;
      ASSERT_EQ(divisor.Remainder(int(n)), int(n) % d) << n << " % " << d;
    };
    for (const int n : {0, 1, kMost - 1, kMost}) check(n);
    // Where quotients change: any error shows there.
    for (int i = 0; i < 200; ++i) {
      const std::int64_t multiple = std::int64_t(random() >> 1) / d * d;
      check(multiple - 1), check(multiple), check(multiple + d - 1);
    }
    check(std::int64_t(kMost) / d * d - 1), check(std::int64_t(kMost) / d * d);
  }
}

}  // namespace
}  // namespace troop::cuda
