#include "learners/node/replayed_unroll_sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "tests/learners/node/unroll_queue.h"

namespace troop {
namespace {

class ReplayedUnrollSamplerTest : public testing::Test {
 protected:
  ReplayedUnrollSampler Make(const ReplayedUnrollSampler::Options& options) {
    return ReplayedUnrollSampler(std::make_unique<UnrollQueue>(&queue_), options);
  }
  std::vector<std::uint32_t> Slots(ReplayedUnrollSampler* sampler,
                                   const std::vector<std::uint32_t>& fresh) {
    queue_.batches.push_back(NumberedUnrolls(fresh, 1));
    const auto batch = sampler->Next();
    EXPECT_TRUE(batch.ok() && batch->has_value());
    return SlotsOf(**batch);
  }
  UnrollQueueState queue_;
};

// The new unrolls come first; replayed ones are of earlier batches, and not older than the
// capacity.
TEST_F(ReplayedUnrollSamplerTest, ReplaysTheLastUnrollsOfEarlierBatches) {
  ReplayedUnrollSampler sampler = Make({.rows = 5, .capacity = 6, .seed = 3});
  EXPECT_EQ(Slots(&sampler, {0, 1}), (std::vector<std::uint32_t>{0, 1}));
  std::map<std::uint32_t, int> ages;
  for (std::uint32_t k = 1; k < 400; ++k) {
    const std::vector<std::uint32_t> slots = Slots(&sampler, {2 * k, 2 * k + 1});
    ASSERT_EQ(slots.size(), 7u);
    EXPECT_EQ(slots[0], 2 * k);
    EXPECT_EQ(slots[1], 2 * k + 1);
    for (std::size_t i = 2; i < 7; ++i) {
      ASSERT_LT(slots[i], 2 * k);
      ASSERT_GE(slots[i] + 6, 2 * k) << "it was dropped";
      if (k > 3) ++ages[2 * k - slots[i]];
    }
  }
  // Uniform over six ages: 396 batches of five; within five standard deviations.
  const double trials = 396 * 5, p = 1.0 / 6;
  EXPECT_EQ(ages.size(), 6u);
  for (const auto& [age, count] : ages)
    EXPECT_NEAR(count, trials * p, 5 * std::sqrt(trials * p * (1 - p))) << age;
}

// A restarted learner continues the stream of its batches.
TEST_F(ReplayedUnrollSamplerTest, RowsFollowFromSeedLearnerAndNumber) {
  const auto rows = [this](std::int64_t seed, std::int64_t learner, std::uint64_t first) {
    ReplayedUnrollSampler sampler =
        Make({.rows = 8, .capacity = 64, .seed = seed, .learner = learner, .first = first});
    std::vector<std::uint32_t> fresh(64);
    for (std::uint32_t k = 0; k < 64; ++k) fresh[k] = k;
    Slots(&sampler, fresh);
    return Slots(&sampler, {100});
  };
  EXPECT_EQ(rows(1, 0, 5), rows(1, 0, 5));
  EXPECT_NE(rows(1, 0, 5), rows(2, 0, 5));
  EXPECT_NE(rows(1, 0, 5), rows(1, 1, 5));
  EXPECT_NE(rows(1, 0, 5), rows(1, 0, 6));
}

TEST_F(ReplayedUnrollSamplerTest, ExcludedUnrollIsNotReplayed) {
  ReplayedUnrollSampler sampler = Make({.rows = 4, .capacity = 100});
  Slots(&sampler, {1, 2, 3});
  const ItemKey keys[] = {{.slot = 1, .generation = 1}, {.slot = 2, .generation = 1}};
  sampler.UpdatePriorities(keys, std::vector<float>{0.0F, -0.0F});
  EXPECT_EQ(queue_.priorities.size(), 2u) << "the replay receives them, too";
  std::set<std::uint32_t> seen;
  for (std::uint32_t k = 0; k < 30; ++k) {
    for (const std::uint32_t slot : Slots(&sampler, {100})) seen.insert(slot);
  }
  EXPECT_EQ(seen, (std::set<std::uint32_t>{1, 3, 100}));
}

TEST_F(ReplayedUnrollSamplerTest, WaitsAndEndsWithTheReplay) {
  ReplayedUnrollSampler sampler = Make({.rows = 4, .capacity = 100});
  Slots(&sampler, {1, 2, 3});
  EXPECT_FALSE((*sampler.Next()).has_value());
  sampler.Drain();
  EXPECT_EQ(sampler.Next().status().code(), Code::kOutOfRange);
}

}  // namespace
}  // namespace troop
