#include "learners/node/rollout_sampler.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace troop {
namespace {

constexpr std::int64_t kSteps = 4;  // columns of an unroll

// Unrolls that the test adds one by one.
class UnrollQueue final : public ReplaySampler {
 public:
  struct Counts {
    std::uint64_t version = 0;
    bool drained = false;
    Time polled{};
    std::deque<SampleBatch> later;
  };
  UnrollQueue(std::deque<SampleBatch>* unrolls, Counts* counts)
      : unrolls_(unrolls), counts_(counts) {}
  void AddShard(std::unique_ptr<Channel>) override {}
  // Unrolls beyond the requests in flight arrive after a Poll.
  void Poll(Time now) override {
    counts_->polled = now;
    for (; !counts_->later.empty() && unrolls_->empty(); counts_->later.pop_front())
      unrolls_->push_back(std::move(counts_->later.front()));
  }
  Result<std::optional<SampleBatch>> Next() override {
    if (!unrolls_->empty()) {
      std::optional<SampleBatch> next = std::move(unrolls_->front());
      unrolls_->pop_front();
      return next;
    }
    if (counts_->drained) return OutOfRange("drained");
    return std::optional<SampleBatch>();
  }
  void UpdatePriorities(std::span<const ItemKey>, std::span<const float>) override {
    ADD_FAILURE() << "an unroll is used up, so it has no priority";
  }
  void ObservePolicyVersion(std::uint64_t version) override { counts_->version = version; }
  void SetBeta(double) override {}
  void Drain() override { counts_->drained = true; }
  int ready_batches() const override { return int(unrolls_->size()); }
  int shards_alive() const override { return 1; }

 private:
  std::deque<SampleBatch>* const unrolls_;
  Counts* const counts_;
};

class RolloutSamplerTest : public testing::Test {
 protected:
  RolloutSampler Make(const RolloutSampler::Options& options) {
    return RolloutSampler(std::make_unique<UnrollQueue>(&unrolls_, &counts_), options);
  }
  // An unroll whose numbers identify it: number `slot` in every tensor.
  void Add(std::uint32_t slot, std::int32_t length, std::uint64_t version) {
    SampleBatch one{.key = {{.slot = slot, .generation = 1}},
                    .probability = {0.25},
                    .weight = {0.5F},
                    .observation = Tensor(DType::kF32, {1, kSteps + 1, 2}),
                    .action = Tensor(DType::kI32, {1, kSteps}),
                    .reward = Tensor(DType::kF32, {1, kSteps}),
                    .discount = Tensor(DType::kF32, {1, kSteps}),
                    .state = Tensor(DType::kF32, {1, kSteps}),
                    .length = {length},
                    .burn_in = {0},
                    .policy_version = {version}};
    for (Tensor* t : {&one.observation, &one.reward, &one.discount, &one.state})
      std::ranges::fill(t->as<float>(), float(slot));
    std::ranges::fill(one.action.as<std::int32_t>(), std::int32_t(slot));
    unrolls_.push_back(std::move(one));
  }
  // The unrolls of the next batch; empty: none is ready.
  static std::vector<std::uint32_t> Slots(RolloutSampler* sampler) {
    const auto batch = sampler->Next();
    EXPECT_TRUE(batch.ok()) << batch.status().ToString();
    std::vector<std::uint32_t> slots;
    if (!batch.ok() || !batch->has_value()) return slots;
    const SampleBatch& b = **batch;
    for (std::size_t i = 0; i < b.key.size(); ++i) {
      slots.push_back(b.key[i].slot);
      EXPECT_EQ(b.weight[i], 1);
      for (const Tensor* t : {&b.observation, &b.reward, &b.discount, &b.state}) {
        EXPECT_EQ(t->dim(0), b.size());
        for (const float x : t->Rows(std::int64_t(i), 1).as<float>()) EXPECT_EQ(x, b.key[i].slot);
      }
      for (const std::int32_t x : b.action.Rows(std::int64_t(i), 1).as<std::int32_t>())
        EXPECT_EQ(std::uint32_t(x), b.key[i].slot);
      EXPECT_EQ(b.length[i], 1 + std::int32_t(b.key[i].slot % kSteps));
    }
    return slots;
  }
  // `count` unrolls of 1, 2, 3, 4, 1, … steps, from number `first` on.
  void AddUnrolls(std::uint32_t first, std::uint32_t count, std::uint64_t version) {
    for (std::uint32_t k = first; k < first + count; ++k)
      Add(k, 1 + std::int32_t(k % kSteps), version);
  }

  std::deque<SampleBatch> unrolls_;
  UnrollQueue::Counts counts_;
};

// Each epoch is a partition of the rollout, in another order.
TEST_F(RolloutSamplerTest, EveryEpochUsesEveryUnrollOnce) {
  RolloutSampler sampler = Make({.steps = 25, .epochs = 3, .minibatches = 4, .seed = 5});
  sampler.ObservePolicyVersion(7);
  EXPECT_EQ(counts_.version, 7u);
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
  Add(1, 2, 3);
  Add(5, 2, 3);
  EXPECT_EQ(Slots(&sampler), std::vector<std::uint32_t>{1});
  EXPECT_TRUE(Slots(&sampler).empty());
  EXPECT_EQ(sampler.ready_batches(), 0) << "the learner would poll without a pause";
  sampler.ObservePolicyVersion(3);
  EXPECT_TRUE(Slots(&sampler).empty()) << "the same weights again";
  sampler.ObservePolicyVersion(4);
  EXPECT_TRUE(Slots(&sampler).empty());
  EXPECT_EQ(sampler.dropped(), 1);
  Add(9, 2, 4);
  EXPECT_EQ(Slots(&sampler), std::vector<std::uint32_t>{9});
  // A learner that resumes has fewer updates, and another incarnation.
  sampler.ObservePolicyVersion(WeightsVersion(1, 1));
  Add(13, 2, 5);
  Add(17, 2, WeightsVersion(1, 1));
  EXPECT_EQ(Slots(&sampler), std::vector<std::uint32_t>{17});
  EXPECT_EQ(sampler.dropped(), 2);
}

// No event wakes the learner for requests that it did not send.
TEST_F(RolloutSamplerTest, RequestsMoreAfterTakingAll) {
  RolloutSampler sampler = Make({.steps = 21, .epochs = 1, .minibatches = 1});
  sampler.ObservePolicyVersion(1);
  AddUnrolls(0, 9, 1);
  counts_.later = std::exchange(unrolls_, {});
  const Time now = Time{} + Seconds(5);
  sampler.Poll(now);
  EXPECT_EQ(Slots(&sampler).size(), 9u) << "one turn of the learner";
  EXPECT_EQ(counts_.polled, now);
}

// The run's last rollout is seldom complete.
TEST_F(RolloutSamplerTest, EndsWithTheReplayAndCountsTheRest) {
  for (const bool waiting : {false, true}) {
    counts_ = {};
    unrolls_.clear();
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
    unrolls_.clear();
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
