#include "fleet/run/role_status.h"

#include <gtest/gtest.h>

namespace troop {
namespace {

TEST(WorkRateTest, AveragesWorkOverLastSeconds) {
  WorkRate rate;
  Time now = Time{} + Seconds(1000);
  EXPECT_EQ(rate.PerSecond(now), 0);
  double work = 500;  // of a run that was resumed
  rate.Note(now, work);
  EXPECT_EQ(rate.PerSecond(now), 0);
  for (int i = 0; i < 40; ++i) {
    now += Milliseconds(250);
    rate.Note(now, work += 25);
  }
  EXPECT_NEAR(rate.PerSecond(now), 100, 1e-6);
  EXPECT_EQ(rate.work(), work);
  // Work older than two windows no longer counts.
  for (int i = 0; i < 40; ++i) {
    now += Milliseconds(250);
    rate.Note(now, work += 5);
  }
  EXPECT_NEAR(rate.PerSecond(now), 20, 1e-6);
}

TEST(WorkRateTest, DecaysDuringSilence) {
  WorkRate rate;
  Time now{};
  for (int i = 0; i <= 12; ++i) rate.Note(Time{} + Milliseconds(250 * i), 10 * i);
  now += Seconds(3);
  const double working = rate.PerSecond(now);
  EXPECT_NEAR(working, 40, 1e-6);
  EXPECT_EQ(rate.PerSecond(now + Milliseconds(400)), working);  // the next beat is not late yet
  EXPECT_LT(rate.PerSecond(now + Seconds(60)), 2);
}

TEST(WorkRateTest, IsNeverNegative) {
  WorkRate rate;
  rate.Note(Time{} + Seconds(1), 1000);
  rate.Note(Time{} + Seconds(2), 1100);
  rate.Note(Time{} + Seconds(3), 900);
  EXPECT_EQ(rate.PerSecond(Time{} + Seconds(3)), 0);
  rate.Note(Time{} + Seconds(4), 950);
  EXPECT_NEAR(rate.PerSecond(Time{} + Seconds(4)), 50, 1e-6);
}

}  // namespace
}  // namespace troop
