#include "apps/envtools/env_benchmark.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

namespace troop {
namespace {

TEST(EnvSpeedTest, MeasuresAndSortsStepRates) {
  const auto speed = MeasureEnvironment("Acrobot-v1", {}, 4, Milliseconds(50));
  ASSERT_TRUE(speed.ok()) << speed.status().ToString();
  ASSERT_EQ(speed->steps_per_s.size(), std::size_t(kEnvSpeedParts));
  EXPECT_TRUE(std::ranges::is_sorted(speed->steps_per_s));
  EXPECT_GT(speed->steps_per_s[0], 0);
  EXPECT_GE(1 / speed->a_step, 0.5 * speed->steps_per_s.front());
  EXPECT_LE(1 / speed->a_step, 2 * speed->steps_per_s.back());
  EXPECT_FALSE(speed->inside);
}

TEST(EnvSpeedTest, MeasuresTimeInsideEnvironmentProcess) {
  setenv("TROOP_PROGRAM", TROOP_ENV_WORKER, 1);
  const EnvOptions options{.isolation = Isolation::kProcess};
  const auto speed = MeasureEnvironment("Acrobot-v1", options, 4, Milliseconds(50));
  ASSERT_TRUE(speed.ok()) << speed.status().ToString();
  ASSERT_TRUE(speed->inside);
  EXPECT_GT(*speed->inside, 0);
  EXPECT_LT(*speed->inside, speed->a_step);
}

TEST(EnvSpeedTest, ReturnsErrorForUnknownEnvironment) {
  EXPECT_EQ(MeasureEnvironment("Nothing-v0", {}, 4, Milliseconds(50)).status().code(),
            Code::kNotFound);
}

}  // namespace
}  // namespace troop
