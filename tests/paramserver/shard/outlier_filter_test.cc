#include "paramserver/shard/outlier_filter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/base/philox.h"

namespace troop {
namespace {

TEST(OutlierGuardTest, DropsForgedLossAndKeepsNormalOnes) {
  // |N(5, 1)|: beyond m = 3 lie 0.135 % of them, 13.5 of 10,000; a limit that is itself estimated
  // from 1,000 adds a few. 40 and more come once in 1e7 runs.
  for (const auto& [m, most] : std::vector<std::pair<double, int>>{{3, 40}, {6, 0}}) {
    OutlierFilter guard(m, 1000, 30);
    Rng rng({4, Purpose::kTest});
    int dropped = 0;
    for (int i = 0; i < 10000; ++i) {
      dropped += guard.Judge(0, float(5 + rng.Normal()));
      if (i % 1000 == 999) {
        EXPECT_TRUE(guard.Judge(0, 105)) << i;
        EXPECT_TRUE(guard.Judge(0, -105)) << i;
      }
    }
    EXPECT_LE(dropped, most);
    EXPECT_NEAR(guard.entries()[0].mean, 5, 0.2);
    EXPECT_NEAR(std::sqrt(guard.entries()[0].variance), 1, 0.1);
  }
}

TEST(OutlierGuardTest, AcceptsEverythingUntilEnoughSamples) {
  OutlierFilter guard(1, 1000, 10);
  for (int i = 0; i < 9; ++i) EXPECT_FALSE(guard.Judge(0, 1));
  EXPECT_FALSE(guard.Judge(0, 1e6f));
  OutlierFilter off(0, 1000, 30);
  EXPECT_FALSE(off.Judge(0, std::numeric_limits<float>::quiet_NaN()));
}

TEST(OutlierGuardTest, AdaptsToLastingIncrease) {
  OutlierFilter guard(4, 1000, 30);
  Rng rng({5, Purpose::kTest});
  for (int i = 0; i < 1000; ++i) guard.Judge(0, float(1 + 0.1 * rng.Normal()));
  int dropped = 0, until = 0;
  for (int i = 0; i < 5000; ++i) {
    if (!guard.Judge(0, float(3 + 0.1 * rng.Normal()))) continue;
    ++dropped;
    until = i;
  }
  EXPECT_GT(dropped, 10);
  EXPECT_LT(until, 1000);
}

TEST(OutlierGuardTest, JudgesLearnersSeparatelyAndDropsNonFiniteValues) {
  OutlierFilter guard(5, 1000, 30);
  Rng rng({6, Purpose::kTest});
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(guard.Judge(0, float(1 + 0.1 * rng.Uniform())));
    EXPECT_FALSE(guard.Judge(1, float(1000 + rng.Uniform())));
  }
  EXPECT_TRUE(guard.Judge(0, 1000));
  EXPECT_FALSE(guard.Judge(1, 1000.5f));
  EXPECT_TRUE(guard.Judge(1, std::numeric_limits<float>::infinity()));
  EXPECT_TRUE(guard.Judge(7, std::numeric_limits<float>::quiet_NaN()));
  EXPECT_EQ(guard.entries().size(), 2u);
  OutlierFilter again(5, 1000, 30);
  ASSERT_TRUE(again.Restore({guard.entries().begin(), guard.entries().end()}).ok());
  EXPECT_TRUE(again.Judge(0, 1000));
  EXPECT_FALSE(again.Restore({{.learner = 2}, {.learner = 1}}).ok());
  EXPECT_FALSE(again.Restore({{.learner = 2, .variance = -1}}).ok());
  EXPECT_FALSE(again.Restore({{.learner = 2, .mean = std::nan("")}}).ok());
}

TEST(OutlierGuardTest, RejectsOptionsOutOfRange) {
  EXPECT_TRUE(CheckGradientFilterOptions({}).ok());
  for (const GradientFilterOptions& bad :
       {GradientFilterOptions{.staleness_max = -2}, GradientFilterOptions{.loss_deviations = -1},
        GradientFilterOptions{.loss_deviations = std::nan("")}, GradientFilterOptions{.window = 1},
        GradientFilterOptions{.first = 0}, GradientFilterOptions{.norm_deviations = -1}}) {
    EXPECT_EQ(CheckGradientFilterOptions(bad).code(), Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace troop
