#include "actors/exploration.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <utility>

namespace troop {
namespace {

TEST(ExplorationEpsilonTest, MatchesApexPaper) {
  for (const std::uint64_t count : {2u, 8u, 360u}) {
    for (std::uint64_t i = 0; i < count; ++i) {
      EXPECT_DOUBLE_EQ(ExplorationEpsilon(0.4, 7, i, count),
                       std::pow(0.4, 1 + 7.0 * double(i) / double(count - 1)));
    }
  }
  EXPECT_DOUBLE_EQ(ExplorationEpsilon(0.4, 7, 0, 360), 0.4);
  EXPECT_NEAR(ExplorationEpsilon(0.4, 7, 359, 360), 0.00065536, 1e-12);  // 0.4^8
}

TEST(AnnealedEpsilonTest, DecaysLinearlyAfterWarmup) {
  const ActorConfig keys{
      .epsilon_steps = 1000, .epsilon_initial = 0.9, .epsilon_final = 0.1, .warmup_steps = 50};
  const std::vector<std::pair<std::int64_t, double>> points = {
      {0, 1},     {49, 1},     {50, 0.9},   {51, 0.9 - 0.8 / 1000}, {300, 0.7},
      {550, 0.5}, {1050, 0.1}, {1051, 0.1}, {1000000000000, 0.1}};
  for (const auto& [steps, epsilon] : points) {
    EXPECT_NEAR(AnnealedEpsilon(keys, steps), epsilon, 1e-12) << steps;
  }
  EXPECT_EQ(AnnealedEpsilon({.epsilon_steps = 7}, 0), 1);
  EXPECT_EQ(AnnealedEpsilon({.epsilon_steps = 7}, 7), 0.1);
}

TEST(ExplorationEpsilonTest, SingleEnvironmentUsesBase) {
  EXPECT_DOUBLE_EQ(ExplorationEpsilon(0.4, 7, 0, 1), 0.4);
}

}  // namespace
}  // namespace troop
