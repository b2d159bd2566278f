#include "core/metrics/wilson_interval.h"

#include <gtest/gtest.h>

namespace troop {
namespace {

// The values of R's binom.confint(..., methods = "wilson") and of the closed form.
TEST(WilsonTest, MatchesWilsonScoreInterval) {
  const ConfidenceInterval some = WilsonInterval(85, 100);
  EXPECT_NEAR(some.low, 0.76716, 1e-5);
  EXPECT_NEAR(some.high, 0.90694, 1e-5);
  const ConfidenceInterval half = WilsonInterval(5, 10);
  EXPECT_NEAR(half.low, 0.23659, 1e-5);
  EXPECT_NEAR(half.high, 0.76341, 1e-5);
}

TEST(WilsonTest, HasWidthWhereAllOrNoneSucceed) {
  const ConfidenceInterval all = WilsonInterval(60, 60), none = WilsonInterval(0, 60);
  EXPECT_NEAR(all.low, 0.93982, 1e-5);
  EXPECT_EQ(all.high, 1);
  EXPECT_EQ(none.low, 0);
  EXPECT_NEAR(none.high, 0.06018, 1e-5);
  EXPECT_EQ(WilsonInterval(0, 0).high, 1);
}

}  // namespace
}  // namespace troop
