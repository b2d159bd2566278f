// Learners that normalize the batch of all as a whole (model.sync_batch_norm).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "learners/images/image_classification.h"
#include "learners/sync/allreduce_step.h"
#include "tests/collective/ranks.h"
#include "tests/learners/images/image_fixture.h"

namespace troop {
namespace {

// Ten images: batches of 9 and 1, the last of which leaves a learner without any.
TrainingConfig Config(bool sync) {
  TrainingConfig config = test::ImageConfig();
  config.learner.batch_size = 9;
  config.optimizer.momentum = 0.9;
  config.model.sync_batch_norm = sync;
  return config;
}

std::unique_ptr<Algorithm> Make(const TrainingConfig& config) {
  return *MakeImageClassification(config, test::RandomImages(10, 6), {});
}

// The values of both learners after some updates.
std::vector<std::vector<float>> Train(const TrainingConfig& config, int updates) {
  SimGroup gradients({.size = 2}), batch({.size = 2});
  std::vector<std::vector<float>> values(2);
  Ranks mean, sums;
  for (int rank = 0; rank < 2; ++rank) {
    mean.push_back(gradients.Rank(rank));
    sums.push_back(batch.Rank(rank));
  }
  RunRanks(2, [&](int rank) {
    const auto r = std::size_t(rank);
    const auto algorithm = Make(config);
    EXPECT_EQ(algorithm->batch_partition()->needs_group(), config.model.sync_batch_norm);
    if (config.model.sync_batch_norm) algorithm->batch_partition()->SetGroup(sums[r].get());
    for (int update = 0; update < updates; ++update) {
      AllReduceStep step(mean[r].get(), algorithm.get());
      std::vector<float> priority(1);
      const SampleBatch none;
      EXPECT_TRUE(step.Begin(&none, 0, false, priority).ok());
      const auto outcome = step.Wait();
      EXPECT_TRUE(outcome.ok() && outcome->applied) << outcome.status().ToString();
    }
    values[r].assign(algorithm->value().begin(), algorithm->value().end());
    algorithm->batch_partition()->SetGroup(nullptr);
  });
  return values;
}

double Apart(const std::vector<float>& a, std::span<const float> b) {
  double squares = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    squares += std::pow(double(a[i]) - double(b[i]), 2);
    norm += std::pow(double(b[i]), 2);
  }
  return std::sqrt(squares / norm);
}

// Two epochs, whose second batch is computed by both learners.
TEST(BatchStatisticsTest, TwoLearnersEqualOne) {
  for (const std::vector<double>& shares : {std::vector<double>{}, {0.8, 0.2}}) {
    TrainingConfig config = Config(true);
    config.mesh.batch_shares = shares;
    const auto alone = Make(config);
    for (int update = 0; update < 4; ++update) {
      float priority = 0;
      ASSERT_TRUE(alone->ComputeGradient({}, {&priority, 1}, nullptr).ok());
      alone->ApplyGradient(0, alone->GradientNorm());
    }
    const auto both = Train(config, 4);
    EXPECT_LT(Apart(both[0], alone->value()), 1e-5);
    EXPECT_TRUE(both[0] == both[1]);
    // The statistics of each part are others.
    if (!shares.empty()) continue;
    EXPECT_GT(Apart(Train(Config(false), 4)[0], alone->value()), 1e-3);
  }
}

// A learner that dies within the exchange: the other one must not wait for it.
TEST(BatchStatisticsTest, LostGroupEndsTheRound) {
  SimGroup gradients({.size = 2}), batch({.size = 2});
  const auto mean = gradients.Rank(0), sums = batch.Rank(0), other = batch.Rank(1);
  TrainingConfig config = Config(true);
  config.learner.batch_size = 10;  // one batch, so that both learners have images
  const auto algorithm = Make(config);
  algorithm->batch_partition()->SetGroup(sums.get());
  other->Abort(Unavailable("learner 1 has died"));
  AllReduceStep step(mean.get(), algorithm.get());
  std::vector<float> priority(1);
  const SampleBatch none;
  const Status begun = step.Begin(&none, 0, false, priority);
  EXPECT_THAT(begun.message(), testing::HasSubstr("learner 1 has died"));
  EXPECT_FALSE(mean->status().ok());
}

}  // namespace
}  // namespace troop
