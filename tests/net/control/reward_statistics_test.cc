#include "net/control/reward_statistics.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/base/philox.h"
#include "net/control/heartbeat_request.h"
#include "net/wire/codec.h"

namespace troop {
namespace {

// Discounted returns of a few episodes, step by step.
std::vector<double> Returns(std::uint64_t seed, double offset) {
  Rng rng({.run_seed = seed, .purpose = Purpose::kTest});
  std::vector<double> returns;
  double g = 0;
  for (int step = 0; step < 1000; ++step) {
    g = 0.97 * g + offset + rng.Normal();
    returns.push_back(g);
    if (rng.Uniform() < 0.02) g = 0;
  }
  return returns;
}

// Two passes over all values: their mean, then the squares.
RewardStatistics TwoPasses(const std::vector<double>& values) {
  RewardStatistics all{.count = double(values.size())};
  for (const double x : values) all.mean += x;
  all.mean /= all.count;
  for (const double x : values) all.squares += (x - all.mean) * (x - all.mean);
  return all;
}

void ExpectNear(const RewardStatistics& got, const RewardStatistics& want) {
  EXPECT_EQ(got.count, want.count);
  EXPECT_NEAR(got.mean, want.mean, 1e-9 * (1 + std::abs(want.mean)));
  EXPECT_NEAR(got.squares, want.squares, 1e-9 * (1 + want.squares));
}

// Also for a mean far from 0, where the difference of large squares would have no digits left.
TEST(RewardStatisticsTest, MatchesTwoPassesOverAllValues) {
  for (const double offset : {0.0, 3.0, -1e6}) {
    const std::vector<double> values = Returns(1, offset);
    RewardStatistics one;
    for (const double x : values) EXPECT_TRUE(one.Add(x));
    const RewardStatistics want = TwoPasses(values);
    ExpectNear(one, want);
    EXPECT_NEAR(one.Scale(), 1 / std::sqrt(want.squares / want.count + 1e-8), 1e-9 * one.Scale());
  }
}

// Actors have different numbers of values, and one has none yet.
TEST(RewardStatisticsTest, MergedPartsMatchAllValues) {
  std::vector<double> all;
  RewardStatistics merged;
  for (const std::size_t size : {1000u, 3u, 0u, 517u}) {
    std::vector<double> part = Returns(size, double(size) / 100);
    part.resize(size);
    RewardStatistics one;
    for (const double x : part) EXPECT_TRUE(one.Add(x));
    EXPECT_TRUE(merged.Merge(one));
    all.insert(all.end(), part.begin(), part.end());
  }
  ExpectNear(merged, TwoPasses(all));
}

TEST(RewardStatisticsTest, ScaleIsOneWithoutVariance) {
  RewardStatistics none;
  EXPECT_EQ(none.Scale(), 1);
  for (int i = 0; i < 9; ++i) EXPECT_TRUE(none.Add(0));
  EXPECT_EQ(none.Scale(), 1);
}

// Former fault: the squares of finite returns became infinite, and the scale of all rewards 0.
TEST(RewardStatisticsTest, OverflowChangesNothing) {
  RewardStatistics some;
  for (const double x : {1.0, 2.0, 4.0}) EXPECT_TRUE(some.Add(x));
  const RewardStatistics before = some;
  EXPECT_FALSE(some.Merge({.count = 5, .mean = 1e160, .squares = 0}));
  EXPECT_FALSE(some.Merge({.count = 1e308, .mean = 1e150, .squares = 0}));
  for (const double bad : {1e160, -1e300, HUGE_VAL, std::nan("")}) EXPECT_FALSE(some.Add(bad));
  EXPECT_EQ(some, before);
  // Just within the range.
  EXPECT_TRUE(some.Merge({.count = 5, .mean = 1e150, .squares = 0}));
  EXPECT_TRUE(some.Valid());
  EXPECT_GT(some.Scale(), 0);
}

// Runs that do not normalize keep the bytes of their messages.
TEST(RewardStatisticsTest, IsAbsentFromHeartbeatWithoutValues) {
  HeartbeatReply reply{.issued = {1, 2}};
  const std::size_t without = EncodeBody(reply).size();
  reply.rewards = {.count = 3, .mean = -2, .squares = 0.5};
  const std::string bytes = EncodeBody(reply);
  EXPECT_EQ(bytes.size(), without + 24);
  const auto read = DecodeBody<HeartbeatReply>(bytes);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->rewards, reply.rewards);
  EXPECT_EQ(DecodeBody<HeartbeatReply>(std::string_view(bytes).substr(0, without))->rewards,
            RewardStatistics{});
}

TEST(RewardStatisticsTest, RefusesStatisticsOfNoSeries) {
  for (const RewardStatistics& bad :
       {RewardStatistics{1, std::nan(""), 0}, RewardStatistics{1, 0, -1},
        RewardStatistics{1, 0, HUGE_VAL}, RewardStatistics{HUGE_VAL, 0, 0}}) {
    EXPECT_FALSE(DecodeBody<HeartbeatRequest>(EncodeBody(HeartbeatRequest{.rewards = bad})).ok());
  }
}

}  // namespace
}  // namespace troop
