#include "core/graphics/plot/value_axis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/base/philox.h"

namespace troop {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;

TEST(ValueAxisTest, TicksAreRoundNumbersWithinRange) {
  EXPECT_THAT(NiceTicks(0, 100, 5), ElementsAre(0, 20, 40, 60, 80, 100));
  EXPECT_THAT(NiceTicks(-7, 499, 6), ElementsAre(0, 100, 200, 300, 400));
  EXPECT_THAT(NiceTicks(0.1, 0.42, 4), ElementsAre(DoubleNear(0.1, 1e-12), DoubleNear(0.2, 1e-12),
                                                   DoubleNear(0.3, 1e-12), DoubleNear(0.4, 1e-12)));
  EXPECT_THAT(NiceTicks(-2e6, 2e6, 4), ElementsAre(-2e6, -1e6, 0, 1e6, 2e6));
}

TEST(ValueAxisTest, EveryRangeHasFewTicksInsideIt) {
  Rng rng({.run_seed = 2, .purpose = Purpose::kTest});
  for (int i = 0; i < 2000; ++i) {
    const double low = rng.Normal() * std::pow(10, rng.Uniform(-6, 6));
    const double high = low + std::abs(low) * std::pow(10, rng.Uniform(-6, 6));
    const std::vector<double> ticks = NiceTicks(low, high, 8);
    const double slack = (high - low) * 1e-6;
    ASSERT_GE(ticks.size(), 2u) << low << " " << high;
    ASSERT_LE(ticks.size(), 10u) << low << " " << high;
    ASSERT_TRUE(ticks.front() >= low - slack && ticks.back() <= high + slack);
  }
}

TEST(ValueAxisTest, TickLabelsAreShortAndDistinct) {
  EXPECT_EQ(TickText(0, 100, 500), "0");
  EXPECT_EQ(TickText(500, 100, 500), "500");
  EXPECT_EQ(TickText(-0.05, 0.05, 0.2), "-0.05");
  EXPECT_EQ(TickText(20000, 10000, 50000), "20k");
  EXPECT_EQ(TickText(2500, 500, 10000), "2.5k");
  EXPECT_EQ(TickText(1.5e6, 5e5, 2e6), "1.5M");
  EXPECT_EQ(TickText(2e-6, 1e-6, 5e-6), "2e-06");
}

TEST(ValueAxisTest, AxisPlacesItsLabeledTicksInOrder) {
  const ValueAxis axis({0, 50000}, 5);
  ASSERT_EQ(axis.ticks().size(), 6u);
  EXPECT_EQ(axis.step(), 10000);
  EXPECT_EQ(axis.ticks()[2].text, "20k");
  EXPECT_DOUBLE_EQ(axis.Share(axis.ticks()[2].value), 0.4);
  EXPECT_EQ(axis.Share(0), 0);
  EXPECT_EQ(axis.Share(50000), 1);
}

TEST(ValueAxisTest, SpanIgnoresUndrawableValuesAndIsNeverEmpty) {
  ValueSpan span;
  for (const double value : {std::nan(""), std::numeric_limits<double>::infinity(), 1e301}) {
    EXPECT_FALSE(IsDrawable(value));
    span.Add(value);
  }
  EXPECT_EQ(span.Widened(0.1).low, 0);
  EXPECT_EQ(span.Widened(0.1).high, 1);
  span.Add(4);
  EXPECT_EQ(span.Widened(0).low, 2) << "a single value has room of its size";
  EXPECT_EQ(span.Widened(0).high, 6);
  span.Add(14);
  EXPECT_DOUBLE_EQ(span.Widened(0.1).low, 3);
  EXPECT_DOUBLE_EQ(span.Widened(0.1).high, 15);
}

}  // namespace
}  // namespace troop
