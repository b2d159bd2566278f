#include "learners/sync/allreduce_step.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "collective/sim/sim_group.h"
#include "core/base/philox.h"

namespace troop {
namespace {

constexpr std::int64_t kInputs = 3, kActions = 2, kBatch = 5;

TrainingConfig SmallConfig(std::int64_t units) {
  TrainingConfig config;
  LayerConfig layer;
  layer.type = LayerType::kLinear;
  layer.units = units;
  config.network.layers = {layer, layer};
  config.learner.max_grad_norm = 0;
  config.optimizer.type = OptimizerType::kSgd;
  config.optimizer.learning_rate = 0.5;
  config.optimizer.final_lr_fraction = 0.5;
  return config;
}

std::unique_ptr<Algorithm> MakeSmall(const TrainingConfig& config, int learner = 0) {
  EnvSpec env;
  env.id = "test";
  env.observation = {DType::kF32, {kInputs}};
  env.action.count = kActions;
  auto made = MakeAlgorithm(config, env, {}, learner);
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return std::move(made).value();
}

SampleBatch RandomBatch(std::uint64_t seed, std::int64_t items = kBatch) {
  Rng rng({seed, Purpose::kTest});
  SampleBatch b;
  const auto count = std::size_t(items);
  b.key.resize(count);
  b.probability.assign(count, 1.0 / double(items));
  b.weight.assign(count, 1);
  b.length.assign(count, 1);
  b.policy_version.assign(count, 0);
  b.observation = Tensor(DType::kF32, {items, kInputs});
  b.next_observation = Tensor(DType::kF32, {items, kInputs});
  b.action = Tensor(DType::kI32, {items});
  b.reward = Tensor(DType::kF32, {items, 1});
  b.discount = Tensor(DType::kF32, {items, 1});
  for (float& x : b.observation.as<float>()) x = float(rng.Normal());
  for (float& x : b.next_observation.as<float>()) x = float(rng.Normal());
  for (float& x : b.reward.as<float>()) x = float(rng.Normal());
  std::ranges::fill(b.discount.as<float>(), 1.0f);
  for (std::int32_t& a : b.action.as<std::int32_t>()) a = std::int32_t(rng.Below(kActions));
  return b;
}

std::vector<float> Copy(std::span<const float> values) { return {values.begin(), values.end()}; }

// N learners that one thread plays.
class Learners {
 public:
  explicit Learners(int size, std::int64_t units = 8) : Learners(size, SmallConfig(units)) {}
  Learners(int size, const TrainingConfig& config)
      : group_({.size = size, .delay_min = Duration(5000), .delay_max = Duration(500000)}) {
    for (int rank = 0; rank < size; ++rank) {
      algorithms.push_back(MakeSmall(config, rank));
      ranks.push_back(group_.Rank(rank));
    }
  }

  // A round in which rank i has batches[i]; nullptr: none.
  std::vector<Result<AllReduceStep::Outcome>> Round(const std::vector<const SampleBatch*>& batches,
                                                    const std::vector<bool>& exhausted = {},
                                                    int killed = -1) {
    std::vector<std::unique_ptr<AllReduceStep>> rounds;
    std::vector<std::optional<Result<AllReduceStep::Outcome>>> ends(batches.size());
    priority.assign(batches.size(), {});
    for (std::size_t i = 0; i < batches.size(); ++i) {
      if (batches[i] != nullptr) priority[i].resize(batches[i]->key.size());
      rounds.push_back(std::make_unique<AllReduceStep>(ranks[i].get(), algorithms[i].get()));
      if (int(i) == killed) continue;
      const Status begun = rounds[i]->Begin(batches[i], progress_first + progress_step * double(i),
                                            i < exhausted.size() && exhausted[i], priority[i]);
      if (!begun.ok()) ends[i] = begun;
    }
    if (killed >= 0) {
      group_.Kill(killed);
      ends[std::size_t(killed)] = Cancelled("killed");
    }
    for (int turn = 0; turn < 100000; ++turn) {
      bool all = true;
      for (std::size_t i = 0; i < rounds.size(); ++i) {
        if (!ends[i]) ends[i] = rounds[i]->Poll();
        all = all && ends[i];
      }
      if (all) break;
      group_.Advance(Duration(50000));
    }
    std::vector<Result<AllReduceStep::Outcome>> out;
    for (auto& end : ends) {
      EXPECT_TRUE(end.has_value()) << "the round does not end";
      out.push_back(end ? *end : Result<AllReduceStep::Outcome>(Internal("none")));
    }
    return out;
  }

  void Kill(int rank) { group_.Kill(rank); }

  void ExpectAllEqual() const {
    for (const auto& other : algorithms) {
      EXPECT_EQ(other->updates(), algorithms[0]->updates());
      const auto a = std::as_bytes(other->value()), b = std::as_bytes(algorithms[0]->value());
      EXPECT_TRUE(std::ranges::equal(a, b));
    }
  }

  double progress_first = 0, progress_step = 0;  // rank i says: first + i * step of the run is over
  std::vector<std::unique_ptr<Algorithm>> algorithms;
  std::vector<std::vector<float>> priority;
  std::vector<std::unique_ptr<Collective>> ranks;

 private:
  SimGroup group_;
};

// Plain SGD in f64 on the mean of gradients that each batch gives alone. Units of 700: several
// buckets.
TEST(GroupRoundTest, AllRanksApplyMeanGradient) {
  for (const std::int64_t units : {8, 700}) {
    for (const int size : {1, 2, 3}) {
      Learners learners(size, units);
      learners.progress_step = 0.25;
      const auto single = MakeSmall(SmallConfig(units));
      for (std::uint64_t step = 0; step < 3; ++step) {
        std::vector<SampleBatch> batches;
        std::vector<const SampleBatch*> given;
        for (int i = 0; i < size; ++i) batches.push_back(RandomBatch(step * 10 + std::uint64_t(i)));
        const double rate = 0.5 * (1 - 0.5 * 0.125 * (size - 1));
        std::vector<double> want(single->value().size());
        std::ranges::copy(learners.algorithms[0]->value(), want.begin());
        single->external_optimizer()->ReplaceWeights(0, learners.algorithms[0]->value());
        for (const SampleBatch& batch : batches) {
          given.push_back(&batch);
          std::vector<float> priority(kBatch);
          ASSERT_TRUE(single->ComputeGradient(batch, priority).ok());
          for (std::size_t p = 0; p < want.size(); ++p) {
            want[p] -= rate * double(single->gradient()[p]) / size;
          }
        }
        for (const auto& end : learners.Round(given)) {
          ASSERT_TRUE(end.ok()) << end.status().ToString();
          EXPECT_TRUE(end->applied);
          EXPECT_FALSE(end->all_exhausted);
        }
        learners.ExpectAllEqual();
        const auto got = learners.algorithms[0]->value();
        for (std::size_t p = 0; p < want.size(); ++p) {
          ASSERT_NEAR(got[p], want[p], 1e-6 * std::max(1.0, std::abs(want[p]))) << p;
        }
        EXPECT_GT(learners.priority.back()[0], 0);
      }
      EXPECT_EQ(learners.algorithms[0]->updates(), 3u);
    }
  }
}

// All have one batch, so that only the noise differs: each learner computes its gradient with its
// own noise.
TEST(GroupRoundTest, AllRanksApplyMeanOfNoisyGradients) {
  constexpr int kSize = 3;
  TrainingConfig config = SmallConfig(8);
  config.network.noisy = true;
  Learners learners(kSize, config);
  for (std::uint64_t step = 0; step < 3; ++step) {
    const SampleBatch batch = RandomBatch(step);
    const std::vector<float> before = Copy(learners.algorithms[0]->value());
    std::vector<double> want(before.begin(), before.end());
    std::vector<std::vector<float>> gradients;
    for (int i = 0; i < kSize; ++i) {
      const auto single = MakeSmall(config, i);
      single->external_optimizer()->ReplaceWeights(step, before);
      std::vector<float> priority(kBatch);
      ASSERT_TRUE(single->ComputeGradient(batch, priority).ok());
      gradients.push_back(Copy(single->gradient()));
      for (std::size_t p = 0; p < want.size(); ++p)
        want[p] -= 0.5 * double(gradients.back()[p]) / kSize;
    }
    EXPECT_NE(gradients[0], gradients[1]);
    EXPECT_NE(gradients[1], gradients[2]);
    for (const auto& end : learners.Round({&batch, &batch, &batch}))
      ASSERT_TRUE(end.ok() && end->applied) << end.status().ToString();
    learners.ExpectAllEqual();
    for (std::size_t p = 0; p < want.size(); ++p)
      ASSERT_NEAR(learners.algorithms[0]->value()[p], want[p], 1e-6) << p;
  }
}

// The mean is over those that gave one: the round is as one without the other.
TEST(GroupRoundTest, StaysSynchronousWithoutBatch) {
  const SampleBatch batch = RandomBatch(1);
  Learners two(2), one(1);
  two.progress_step = one.progress_first = 0.75;  // it counted as one at the run's beginning
  for (const auto& end : two.Round({nullptr, &batch}, {true, false})) {
    ASSERT_TRUE(end.ok());
    EXPECT_TRUE(end->applied);
    EXPECT_FALSE(end->all_exhausted);
  }
  ASSERT_TRUE(one.Round({&batch})[0].ok());
  EXPECT_EQ(Copy(two.algorithms[0]->value()), Copy(one.algorithms[0]->value()));
  two.ExpectAllEqual();
  const auto before = Copy(two.algorithms[0]->value());
  for (const auto& end : two.Round({nullptr, nullptr}, {true, true})) {
    ASSERT_TRUE(end.ok());
    EXPECT_FALSE(end->applied);
    EXPECT_TRUE(end->all_exhausted);
  }
  EXPECT_EQ(two.algorithms[0]->updates(), 1u);
  EXPECT_EQ(Copy(two.algorithms[0]->value()), before);
}

// Regression: each rank reported the means of its batch, and the mean of those means was shown,
// which differs from the mean over all items.
TEST(GroupRoundTest, EachRankReportsMeansOverAllItems) {
  for (const bool idle : {false, true}) {
    const SampleBatch small = RandomBatch(1, 2), large = RandomBatch(2, 7);
    LossReport want;
    for (const SampleBatch* const batch : {&small, &large}) {
      std::vector<float> priority(batch->key.size());
      const auto one = MakeSmall(SmallConfig(8))->ComputeGradient(*batch, priority);
      ASSERT_TRUE(one.ok());
      EXPECT_EQ(one->rows, double(batch->key.size()));
      want.loss += one->loss * one->rows / 9;
      want.td_error_mean += one->td_error_mean * one->rows / 9;
      want.q_mean += one->q_mean * one->rows / 9;
    }
    Learners learners(idle ? 3 : 2);
    std::vector<const SampleBatch*> batches = {&small, &large};
    if (idle) batches.push_back(nullptr);
    for (const auto& end : learners.Round(batches)) {
      ASSERT_TRUE(end.ok() && end->applied);
      EXPECT_EQ(end->report.rows, 9);
      EXPECT_NEAR(end->report.loss, want.loss, 1e-6);
      EXPECT_NEAR(end->report.td_error_mean, want.td_error_mean, 1e-6);
      EXPECT_NEAR(end->report.q_mean, want.q_mean, 1e-6);
    }
  }
}

TEST(GroupRoundTest, SkipsOnlyBadBatchAndKeepsRanksEqual) {
  const SampleBatch good = RandomBatch(1);
  SampleBatch bad = RandomBatch(2);
  bad.observation.as<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  Learners learners(2), one(1);
  // Each has an old gradient lying about.
  ASSERT_TRUE(learners.Round({&good, &good})[0].ok());
  ASSERT_TRUE(one.Round({&good})[0].ok());
  const auto ends = learners.Round({&good, &bad});
  ASSERT_TRUE(ends[0].ok() && ends[1].ok());
  EXPECT_TRUE(ends[0]->update.ok());
  EXPECT_EQ(ends[1]->update.code(), Code::kDataLoss);
  EXPECT_EQ(ends[0]->given, 1);
  EXPECT_EQ(ends[1]->given, 0);
  learners.ExpectAllEqual();
  EXPECT_EQ(learners.algorithms[0]->updates(), 2u);
  ASSERT_TRUE(one.Round({&good})[0].ok());
  EXPECT_EQ(Copy(learners.algorithms[0]->value()), Copy(one.algorithms[0]->value()));
}

// Each is finite, their sum is not.
TEST(GroupRoundTest, AllRanksSkipNonFiniteSum) {
  SampleBatch huge = RandomBatch(3);
  Learners learners(2);
  const auto before = Copy(learners.algorithms[0]->value());
  // Huber's slope is 1 here: the last bias gets a gradient of 3e38 from each.
  for (float& x : huge.observation.as<float>()) x *= 0.01f;
  std::ranges::fill(huge.reward.as<float>(), 3.0f);
  std::ranges::fill(huge.discount.as<float>(), 0.0f);
  std::ranges::fill(huge.action.as<std::int32_t>(), 0);
  std::ranges::fill(huge.weight, 3e38f);
  std::vector<float> priority(kBatch);
  ASSERT_TRUE(MakeSmall(SmallConfig(8))->ComputeGradient(huge, priority).ok());
  const auto ends = learners.Round({&huge, &huge});
  for (const auto& end : ends) {
    ASSERT_TRUE(end.ok());
    EXPECT_FALSE(end->update.ok());
    EXPECT_FALSE(end->applied);
  }
  learners.ExpectAllEqual();
  EXPECT_EQ(Copy(learners.algorithms[1]->value()), before);
}

TEST(GroupRoundTest, AllRanksFailWithoutUpdateWhenRankDies) {
  const SampleBatch batch = RandomBatch(1);
  Learners learners(3);
  const auto before = Copy(learners.algorithms[0]->value());
  const auto ends = learners.Round({&batch, &batch, &batch}, {}, 1);
  for (const int rank : {0, 2}) {
    EXPECT_EQ(ends[std::size_t(rank)].status().code(), Code::kUnavailable);
    EXPECT_EQ(Copy(learners.algorithms[std::size_t(rank)]->value()), before);
    EXPECT_EQ(learners.algorithms[std::size_t(rank)]->updates(), 0u);
  }
}

// A gradient of many buckets: after one bucket fails, the later ones are canceled, not retried.
TEST(GroupRoundTest, RankDeathAmongManyBucketsEndsRound) {
  for (const int killed_after : {0, 1}) {  // before the others begin, or after
    Learners learners(3, 900);
    ASSERT_GT(learners.algorithms[0]->gradient().size(), 3u << 18);
    const SampleBatch a = RandomBatch(1), b = RandomBatch(2), c = RandomBatch(3);
    if (killed_after == 0) learners.Kill(2);
    const auto ends = learners.Round({&a, &b, &c}, {}, 2);
    for (const int rank : {0, 1})
      EXPECT_EQ(ends[std::size_t(rank)].status().code(), Code::kUnavailable);
    for (const int rank : {0, 1}) EXPECT_EQ(learners.algorithms[std::size_t(rank)]->updates(), 0u);
  }
}

TEST(StateExchangeTest, AdoptsStateWithMostUpdates) {
  Learners learners(3);
  const SampleBatch batch = RandomBatch(1);
  std::vector<float> priority(kBatch);
  for (const auto& [rank, updates] : {std::pair(0, 1), {1, 4}, {2, 4}}) {
    for (int i = 0; i < updates; ++i) {
      const SampleBatch own = RandomBatch(std::uint64_t(100 * rank + i));
      ASSERT_TRUE(learners.algorithms[std::size_t(rank)]->Update(own, 0, priority).ok());
    }
  }
  const auto want = Copy(learners.algorithms[1]->value());  // the first of those with 4
  ASSERT_NE(want, Copy(learners.algorithms[2]->value()));
  std::vector<StateExchange> exchanges;
  for (int i = 0; i < 3; ++i) {
    exchanges.emplace_back(learners.ranks[std::size_t(i)].get(),
                           learners.algorithms[std::size_t(i)].get());
  }
  std::vector<std::optional<Status>> ends(3);
  for (int turn = 0; turn < 100000; ++turn) {
    bool all = true;
    for (std::size_t i = 0; i < 3; ++i) {
      if (!ends[i]) ends[i] = exchanges[i].Poll();
      all = all && ends[i];
    }
    if (all) break;
  }
  for (const auto& end : ends) {
    ASSERT_TRUE(end.has_value());
    EXPECT_TRUE(end->ok()) << end->ToString();
  }
  learners.ExpectAllEqual();
  EXPECT_EQ(learners.algorithms[0]->updates(), 4u);
  EXPECT_EQ(Copy(learners.algorithms[0]->value()), want);
}

}  // namespace
}  // namespace troop
