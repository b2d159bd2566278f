// Tests of a learner's updates, publications and end.

#include "learners/learner_node.h"

#include <gtest/gtest.h>

#include <cmath>

#include "learners/checkpoint.h"
#include "tests/learners/learner_world.h"

namespace troop {
namespace {

TEST(LearnerNodeTest, PublishesInitialWeightsBeforeAnyExperience) {
  LearnerWorld world(WorldConfig());
  ASSERT_TRUE(world.Rounds(300));
  EXPECT_EQ(world.published(), WeightsVersion(4, 0));
  EXPECT_EQ(world.Updates(), 0);
}

TEST(LearnerNodeTest, FollowsRateLimiterAndUpdatesPriorities) {
  LearnerWorld world(WorldConfig());
  ASSERT_TRUE(world.Rounds(300));
  for (int i = 0; i < 10; ++i) {
    world.Insert(20);
    ASSERT_TRUE(world.Rounds(300));
  }
  // 200 items, those after the first 50 give an update each; the band is a tenth of 50.
  EXPECT_NEAR(world.Updates(), 150, 10);
  EXPECT_EQ(world.ReplayMetric("replay/samples"), world.ReplayMetric("replay/updates"));
  EXPECT_EQ(world.ReplayMetric("replay/stale_updates"), 0);
  EXPECT_GE(UpdatesOf(world.published()) + 5 + 32, std::uint64_t(world.Updates()));
}

TEST(LearnerNodeTest, DrainUsesRemainingSamplesAndCheckpoints) {
  LearnerWorld world(WorldConfig());
  world.Insert(200);
  ASSERT_TRUE(world.Rounds(300));
  world.coordinator().reply.phase = Phase::kDraining;
  world.coordinator().reply.steps_total_done = 200;
  ASSERT_TRUE(world.Rounds(1000));
  EXPECT_TRUE(world.coordinator().told.finished);
  const std::string path = world.coordinator().told.checkpoint;
  const auto checkpoint = ReadCheckpoint(world.run(), path);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
  EXPECT_EQ(double(checkpoint->updates), world.Updates());
  EXPECT_EQ(checkpoint->steps, 200);
  EXPECT_EQ(world.published(), WeightsVersion(4, checkpoint->updates));  // the final weights
  world.coordinator().reply.phase = Phase::kDone;
  EXPECT_FALSE(world.Rounds(1000));
  EXPECT_TRUE(world.node().result().ok());
}

// Regression: the second of two synchronous learners to end lost the counts of its last update. The
// reply to an earlier heartbeat announced the end of the run, and the learner left without another
// heartbeat.
TEST(LearnerNodeTest, ReportsLastUpdatesBeforeExit) {
  LearnerWorld world(WorldConfig());
  world.Insert(200);
  ASSERT_TRUE(world.Rounds(300));
  world.coordinator().reply.phase = Phase::kDraining;
  ASSERT_TRUE(world.Rounds(1000));
  const int before = world.coordinator().beats;
  world.coordinator().reply.phase = Phase::kDone;
  EXPECT_FALSE(world.Rounds(1000));
  EXPECT_EQ(world.coordinator().beats, before + 2) << "the one that was answered, and another";
}

TEST(LearnerNodeTest, EndsWithoutCoordinator) {
  LearnerWorld world(WorldConfig());
  world.Insert(200);
  ASSERT_TRUE(world.Rounds(300));
  world.coordinator().reply.phase = Phase::kDraining;
  ASSERT_TRUE(world.Rounds(1000));
  world.coordinator().reply.phase = Phase::kDone;
  const int before = world.coordinator().beats;
  for (int i = 0; world.coordinator().beats == before && i < 1000; ++i)
    ASSERT_TRUE(world.Rounds(1));
  world.silence();
  EXPECT_TRUE(world.Rounds(1000));
  EXPECT_FALSE(world.Rounds(5000));
  EXPECT_TRUE(world.node().result().ok()) << world.node().result().message();
}

TEST(LearnerNodeTest, DoesExactlyMaxUpdates) {
  TrainingConfig config = WorldConfig();
  config.run.max_updates = 37;
  LearnerWorld world(config);
  world.Insert(200);
  ASSERT_TRUE(world.Rounds(1000));
  EXPECT_EQ(world.Updates(), 37);
  EXPECT_TRUE(world.coordinator().told.finished);
  EXPECT_EQ(world.coordinator().told.checkpoint_updates, 37u);
}

// Importance weights: Schaul et al. 2016, from β0 at the first update to 1 at the last one.
TEST(LearnerNodeTest, BetaRisesOverRunAndContinuesAfterResume) {
  TrainingConfig config = WorldConfig();
  config.run.max_updates = 101;
  config.learner.prefetch = 1;
  config.learner.batches_per_request = 1;
  config.replay.beta = 0.4;
  config.replay.final_beta = 1;
  LearnerWorld world(config);
  const auto expected = [](double update) { return 0.4 + 0.6 * (update - 1) / 100; };
  world.Insert(60);
  ASSERT_TRUE(world.Rounds(300));
  const double before = world.Updates();
  ASSERT_GT(before, 1);
  ASSERT_LT(before, 100);
  EXPECT_NEAR(world.Told("learner/beta"), expected(before), 1e-9);
  world.coordinator().reply.stop = true;
  ASSERT_FALSE(world.Rounds(1000));
  const std::string checkpoint = world.coordinator().told.checkpoint;
  world.coordinator().reply.stop = false;
  world.StartLearner(5, checkpoint);
  world.Insert(10);
  ASSERT_TRUE(world.Rounds(300));
  const double version = world.Told("learner/version");
  ASSERT_GT(version, before);
  ASSERT_LT(version, 101);
  EXPECT_NEAR(world.Told("learner/beta"), expected(version), 1e-9);
  world.Insert(200);
  ASSERT_TRUE(world.Rounds(1000));
  ASSERT_EQ(world.Told("learner/version"), 101);
  EXPECT_EQ(world.Told("learner/beta"), 1);
}

// All updates of a job had the rate behind its last one: 0, where the rate falls to 0 and the run
// has few updates.
TEST(LearnerNodeTest, SingleUpdateUsesFullLearningRate) {
  TrainingConfig config = WorldConfig();
  config.run.max_updates = 1;
  config.learner.max_grad_norm = 1e-3;  // less than the gradient's: a step is that times the rate
  config.optimizer.type = OptimizerType::kSgd;
  config.optimizer.momentum = 0;
  config.optimizer.learning_rate = 0.5;
  config.optimizer.final_lr_fraction = 0;
  LearnerWorld world(config);
  const WeightSnapshot first = (world.Rounds(10), world.Published());
  world.Insert(200);
  ASSERT_TRUE(world.Rounds(1000));
  const WeightSnapshot last = world.Published();
  ASSERT_EQ(UpdatesOf(last.version), 1u);
  double squares = 0;
  for (std::size_t i = 0; i < first.value.as<float>().size(); ++i) {
    squares += std::pow(double(last.value.as<float>()[i]) - double(first.value.as<float>()[i]), 2);
  }
  EXPECT_NEAR(std::sqrt(squares), 5e-4, 1e-6);
}

// Regression: actors that started later waited permanently, while the learner waited for them.
TEST(LearnerNodeTest, RepublishesWeightsToRestartedServerWhileIdle) {
  LearnerWorld world(WorldConfig());
  ASSERT_TRUE(world.Rounds(300));
  world.StartParameterServer(8);
  EXPECT_EQ(world.published(), 0u);
  ASSERT_TRUE(world.Rounds(5000));
  EXPECT_EQ(world.published(), WeightsVersion(4, 0));
}

}  // namespace
}  // namespace troop
