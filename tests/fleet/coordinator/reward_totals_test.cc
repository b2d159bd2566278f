// Tests of the run's reward statistics, message by message.
#include "fleet/coordinator/reward_totals.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/fleet/coordinator_world.h"

namespace troop {
namespace {

// Statistics of these values.
RewardStatistics Of(const std::vector<double>& values) {
  RewardStatistics all{.count = double(values.size())};
  for (const double x : values) all.mean += x / all.count;
  for (const double x : values) all.squares += (x - all.mean) * (x - all.mean);
  return all;
}

class RewardTotalsTest : public testing::Test {
 protected:
  static Config NormalizingConfig(bool normalize) {
    Config config = Budget(1000);
    config.env.normalize_rewards = normalize;
    return config;
  }
  void ActorTells(std::int32_t index, std::uint64_t incarnation, const std::vector<double>& all) {
    ASSERT_TRUE(world_.Beat(Role::kActor, index, incarnation, {.rewards = Of(all)}).ok());
  }
  RewardStatistics ToldToLearner(const RewardStatistics& base = {}) {
    const auto reply = world_.Beat(Role::kLearner, 0, learner_, {.rewards = base});
    EXPECT_TRUE(reply.ok()) << reply.status().ToString();
    return reply.ok() ? reply->rewards : RewardStatistics();
  }
  static void ExpectNear(const RewardStatistics& got, const RewardStatistics& want) {
    EXPECT_EQ(got.count, want.count);
    EXPECT_NEAR(got.mean, want.mean, 1e-12);
    EXPECT_NEAR(got.squares, want.squares, 1e-12);
  }

  CoordinatorWorld world_{NormalizingConfig(true)};
  std::uint64_t learner_ = world_.Join(Role::kLearner);
};

// A repeated heartbeat counts once, and a replaced actor's values stay counted.
TEST_F(RewardTotalsTest, MergesActorsOfAllIncarnations) {
  std::uint64_t a = world_.Join(Role::kActor, 0);
  const std::uint64_t b = world_.Join(Role::kActor, 1);
  ActorTells(0, a, {1, 2});
  ActorTells(0, a, {1, 2, 4});
  ActorTells(0, a, {1, 2, 4});
  ActorTells(1, b, {-3});
  ExpectNear(ToldToLearner(), Of({1, 2, 4, -3}));
  a = world_.Join(Role::kActor, 0);
  ExpectNear(ToldToLearner(), Of({1, 2, 4, -3}));
  ActorTells(0, a, {10});
  ExpectNear(ToldToLearner(), Of({1, 2, 4, -3, 10}));
  ExpectNear(world_.Beat(Role::kActor, 1, b)->rewards, Of({1, 2, 4, -3, 10}));
}

// A learner that restarts has a checkpoint with values of this session, which must not count twice.
TEST_F(RewardTotalsTest, FirstLearnerGivesStatisticsOfCheckpoint) {
  const std::uint64_t a = world_.Join(Role::kActor, 0);
  ActorTells(0, a, {1, 2});
  ExpectNear(ToldToLearner(Of({5, 6, 7})), Of({1, 2, 5, 6, 7}));
  learner_ = world_.Join(Role::kLearner);
  ExpectNear(ToldToLearner(Of({1, 2, 5, 6, 7})), Of({1, 2, 5, 6, 7}));
}

// The others stay counted, also when the actor with the odd values is replaced.
TEST_F(RewardTotalsTest, OverflowOfOneActorLeavesItOut) {
  const std::uint64_t a = world_.Join(Role::kActor, 0);
  std::uint64_t b = world_.Join(Role::kActor, 1);
  ActorTells(0, a, {1, 2, 4});
  const RewardStatistics huge{.count = 2, .mean = 1e200, .squares = 0};
  ASSERT_TRUE(world_.Beat(Role::kActor, 1, b, {.rewards = huge}).ok());
  ExpectNear(ToldToLearner(), Of({1, 2, 4}));
  b = world_.Join(Role::kActor, 1);
  ActorTells(1, b, {-3});
  ExpectNear(ToldToLearner(), Of({1, 2, 4, -3}));
  b = world_.Join(Role::kActor, 1);
  ExpectNear(ToldToLearner(), Of({1, 2, 4, -3}));
}

TEST_F(RewardTotalsTest, OnlyActorsAndLearnersMayReport) {
  const std::uint64_t evaluator = world_.Join(Role::kEvaluator);
  const auto reply = world_.Beat(Role::kEvaluator, 0, evaluator, {.rewards = Of({1})});
  EXPECT_EQ(reply.status().code(), Code::kInvalidArgument);
}

TEST_F(RewardTotalsTest, RunWithoutNormalizationHasNone) {
  CoordinatorWorld plain(NormalizingConfig(false));
  const std::uint64_t a = plain.Join(Role::kActor, 0), learner = plain.Join(Role::kLearner);
  ASSERT_TRUE(plain.Beat(Role::kActor, 0, a, {.rewards = Of({1, 2})}).ok());
  EXPECT_EQ(plain.Beat(Role::kLearner, 0, learner)->rewards, RewardStatistics{});
}

}  // namespace
}  // namespace troop
