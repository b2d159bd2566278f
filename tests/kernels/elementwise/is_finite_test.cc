#include "kernels/elementwise/is_finite.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace troop {
namespace {

TEST(FiniteTest, FindsNonFiniteElementAnywhere) {
  using Limits = std::numeric_limits<float>;
  for (const std::size_t size : {1u, 63u, 64u, 65u, 200u}) {
    for (std::size_t at = 0; at < size; ++at) {
      for (const float bad : {Limits::quiet_NaN(), -Limits::quiet_NaN(), Limits::signaling_NaN(),
                              Limits::infinity(), -Limits::infinity()}) {
        std::vector<float> x(size, 1);
        x[at] = bad;
        ASSERT_FALSE(AllFinite(x)) << at << " of " << size;
        ASSERT_EQ(FirstNonFinite(x), at);
        std::vector<float> copy(size);
        ASSERT_EQ(CopyFinite(x, copy), at);
      }
    }
  }
}

TEST(FiniteTest, AcceptsExtremeFiniteValues) {
  using Limits = std::numeric_limits<float>;
  std::vector<float> x(130);
  for (const float good :
       {0.0f, -0.0f, Limits::max(), Limits::lowest(), Limits::min(), Limits::denorm_min(), -1.5f}) {
    std::ranges::fill(x, good);
    EXPECT_TRUE(AllFinite(x)) << good;
    EXPECT_EQ(FirstNonFinite(x), x.size());
    std::vector<float> copy(x.size(), 7);
    EXPECT_EQ(CopyFinite(x, copy), x.size());
    EXPECT_EQ(copy, x);
  }
  EXPECT_TRUE(AllFinite({}));
}

}  // namespace
}  // namespace troop
