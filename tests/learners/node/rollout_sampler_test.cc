#include "learners/node/rollout_sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "tests/learners/node/unroll_queue.h"

namespace troop {
namespace {

class RolloutSamplerTest : public testing::Test {
 protected:
  RolloutSampler Make(const RolloutSampler::Options& options) {
    return RolloutSampler(std::make_unique<UnrollQueue>(&queue_), options);
  }
  // An unroll of slot % 4 + 1 steps.
  void Add(std::uint32_t slot, std::uint64_t version) {
    queue_.batches.push_back(NumberedUnrolls({slot}, version));
  }
  void AddUnrolls(std::uint32_t first, std::uint32_t count, std::uint64_t version) {
    for (std::uint32_t k = first; k < first + count; ++k) Add(k, version);
  }
  // The unrolls of the next batch; empty: none is ready.
  static std::vector<std::uint32_t> Slots(RolloutSampler* sampler) {
    const auto batch = sampler->Next();
    EXPECT_TRUE(batch.ok()) << batch.status().ToString();
    if (!batch.ok() || !batch->has_value()) return {};
    for (const float weight : (*batch)->weight) EXPECT_EQ(weight, 1);
    return SlotsOf(**batch);
  }

  UnrollQueueState queue_;
};

// Each epoch is a partition of the rollout, in another order.
TEST_F(RolloutSamplerTest, EveryEpochUsesEveryUnrollOnce) {
  RolloutSampler sampler = Make({.steps = 25, .epochs = 3, .minibatches = 4, .seed = 5});
  sampler.ObservePolicyVersion(7);
  EXPECT_EQ(queue_.version, 7u);
  AddUnrolls(0, 9, 7);  // 1 + 2 + 3 + 4 + 1 + 2 + 3 + 4 + 1 = 21 steps
  EXPECT_TRUE(Slots(&sampler).empty()) << "4 steps are missing";
  AddUnrolls(9, 5, 7);  // the first two complete it: 2 + 3
  std::set<std::vector<std::uint32_t>> orders;
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<std::uint32_t> order;
    for (int k = 0; k < 4; ++k) {
      EXPECT_FALSE(sampler.TakeEnd());
      const std::vector<std::uint32_t> slots = Slots(&sampler);
      EXPECT_EQ(sampler.ready_batches(), epoch + k == 5 ? 0 : 4 * (3 - epoch) - k - 1);
      // 11 unrolls in 4 parts.
      EXPECT_TRUE(slots.size() == 2 || slots.size() == 3) << slots.size();
      order.insert(order.end(), slots.begin(), slots.end());
    }
    EXPECT_EQ(std::set(order.begin(), order.end()).size(), 11u);
    EXPECT_EQ(order.size(), 11u);
    EXPECT_EQ(std::ranges::max(order), 10u);
    orders.insert(order);
  }
  EXPECT_EQ(orders.size(), 3u);
  EXPECT_TRUE(sampler.TakeEnd());
  EXPECT_FALSE(sampler.TakeEnd());
  EXPECT_EQ(sampler.rollouts(), 1);
  EXPECT_EQ(sampler.dropped(), 0);
}

// The rest of an old rollout, and refills that were not needed, are older than the weights.
TEST_F(RolloutSamplerTest, WaitsForNewerWeightsAndDropsOlderUnrolls) {
  RolloutSampler sampler = Make({.steps = 2, .epochs = 1, .minibatches = 1});
  sampler.ObservePolicyVersion(3);
  Add(1, 3);
  Add(5, 3);
  EXPECT_EQ(Slots(&sampler), std::vector<std::uint32_t>{1});
  EXPECT_TRUE(Slots(&sampler).empty());
  EXPECT_EQ(sampler.ready_batches(), 0) << "the learner would poll without a pause";
  sampler.ObservePolicyVersion(3);
  EXPECT_TRUE(Slots(&sampler).empty()) << "the same weights again";
  sampler.ObservePolicyVersion(4);
  EXPECT_TRUE(Slots(&sampler).empty());
  EXPECT_EQ(sampler.dropped(), 1);
  Add(9, 4);
  EXPECT_EQ(Slots(&sampler), std::vector<std::uint32_t>{9});
  // A learner that resumes has fewer updates, and another incarnation.
  sampler.ObservePolicyVersion(WeightsVersion(1, 1));
  Add(13, 5);
  Add(17, WeightsVersion(1, 1));
  EXPECT_EQ(Slots(&sampler), std::vector<std::uint32_t>{17});
  EXPECT_EQ(sampler.dropped(), 2);
}

// No event wakes the learner for requests that it did not send.
TEST_F(RolloutSamplerTest, RequestsMoreAfterTakingAll) {
  RolloutSampler sampler = Make({.steps = 21, .epochs = 1, .minibatches = 1});
  sampler.ObservePolicyVersion(1);
  AddUnrolls(0, 9, 1);
  queue_.later = std::exchange(queue_.batches, {});
  const Time now = Time{} + Seconds(5);
  sampler.Poll(now);
  EXPECT_EQ(Slots(&sampler).size(), 9u) << "one turn of the learner";
  EXPECT_EQ(queue_.polled, now);
}

// The run's last rollout is seldom complete.
TEST_F(RolloutSamplerTest, EndsWithTheReplayAndCountsTheRest) {
  for (const bool waiting : {false, true}) {
    queue_ = {};
    RolloutSampler sampler = Make({.steps = 6, .epochs = 1, .minibatches = 2});
    sampler.ObservePolicyVersion(1);
    AddUnrolls(1, waiting ? 5 : 1, 1);
    if (waiting) {
      EXPECT_FALSE(Slots(&sampler).empty());
      EXPECT_FALSE(Slots(&sampler).empty());
    }
    EXPECT_TRUE(Slots(&sampler).empty());
    sampler.Drain();
    EXPECT_EQ(sampler.Next().status().code(), Code::kOutOfRange);
    EXPECT_EQ(sampler.dropped(), waiting ? 2 : 1);
  }
}

TEST_F(RolloutSamplerTest, FewUnrollsMakeFewMinibatches) {
  RolloutSampler sampler = Make({.steps = 6, .epochs = 2, .minibatches = 8});
  sampler.ObservePolicyVersion(1);
  AddUnrolls(2, 2, 1);
  for (int k = 0; k < 4; ++k) EXPECT_EQ(Slots(&sampler).size(), 1u);
  EXPECT_TRUE(sampler.TakeEnd());
}

TEST_F(RolloutSamplerTest, OrderFollowsFromSeedLearnerAndVersion) {
  const auto order = [this](std::int64_t seed, std::int64_t learner, std::uint64_t version) {
    queue_ = {};
    RolloutSampler sampler =
        Make({.steps = 40, .epochs = 1, .minibatches = 1, .seed = seed, .learner = learner});
    sampler.ObservePolicyVersion(version);
    AddUnrolls(0, 16, version);
    return Slots(&sampler);
  };
  EXPECT_EQ(order(1, 0, 5).size(), 16u);
  EXPECT_EQ(order(1, 0, 5), order(1, 0, 5));
  EXPECT_NE(order(1, 0, 5), order(2, 0, 5));
  EXPECT_NE(order(1, 0, 5), order(1, 1, 5));
  EXPECT_NE(order(1, 0, 5), order(1, 0, 6));
}

}  // namespace
}  // namespace troop
