#include "learners/node/batch_source.h"

#include <gtest/gtest.h>

namespace troop {
namespace {

TrainingConfig DatasetConfig() {
  TrainingConfig config;
  config.learner.algorithm = AlgorithmKind::kClassifier;
  config.run.max_updates = 40;
  config.run.total_steps = 1000;
  return config;
}

TEST(BatchSourceTest, DatasetGrantsOneUpdatePerJob) {
  const TrainingConfig config = DatasetConfig();
  const auto source = MakeBatchSource({.config = &config});
  EXPECT_EQ(source->sampler(), nullptr);
  ASSERT_TRUE(source->Connect({}).ok());
  ASSERT_NE(source->sampler(), nullptr);
  EXPECT_TRUE(source->all_have_batches());
  EXPECT_FALSE(source->ends_with_steps());
  EXPECT_EQ(source->batches_max(16), 1u);
}

TEST(BatchSourceTest, DatasetSpreadsStepsOverUpdates) {
  const TrainingConfig config = DatasetConfig();
  const auto source = MakeBatchSource({.config = &config});
  EXPECT_EQ(source->StepsAt(0, 77), 0);
  EXPECT_EQ(source->StepsAt(10, 77), 250);
  EXPECT_EQ(source->StepsAt(50, 77), 1000);
  HeartbeatRequest report;
  source->ReportSteps(20, &report);
  EXPECT_EQ(report.steps_done, 500);
}

TEST(BatchSourceTest, ReplayCountsStepsOfActors) {
  TrainingConfig config;
  config.learner.algorithm = AlgorithmKind::kDqn;
  const EnvSpec env;
  const FleetMember member(nullptr, {});
  const auto source = MakeBatchSource({.config = &config, .env = &env, .member = &member});
  EXPECT_FALSE(source->all_have_batches());
  EXPECT_EQ(source->batches_max(16), 16u);
  EXPECT_EQ(source->StepsAt(10, 77), 77);
  HeartbeatRequest report;
  source->ReportSteps(20, &report);
  EXPECT_EQ(report.steps_done, HeartbeatRequest().steps_done);
}

TEST(BatchSourceTest, ReplayEndsWithStepsOnlyWithoutOtherLimit) {
  const EnvSpec env;
  const FleetMember member(nullptr, {});
  for (const bool ratio : {false, true}) {
    for (const bool updates : {false, true}) {
      TrainingConfig config;
      config.learner.algorithm = AlgorithmKind::kDqn;
      config.replay.samples_per_insert = ratio ? 8 : 0;
      config.run.max_updates = updates ? 100 : 0;
      const auto source = MakeBatchSource({.config = &config, .env = &env, .member = &member});
      EXPECT_EQ(source->ends_with_steps(), !ratio && !updates);
    }
  }
}

}  // namespace
}  // namespace troop
