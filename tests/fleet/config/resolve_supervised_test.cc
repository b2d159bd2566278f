#include "fleet/config/resolve_supervised.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/core/temp_folder.h"
#include "tests/fleet/supervised_run_config.h"

namespace troop {
namespace {

using test::SupervisedFixture;
using test::SupervisedRunConfig;

// Three learners, and 12 reviews in batches of 5: 3 batches an epoch.
Config SmallRun() {
  Config config = SupervisedRunConfig("bert");
  config.model.pretrained = "";
  config.model.vocab_size = 0;
  config.learner.batch_size = 5;
  config.run.max_updates = 0;
  config.run.epochs = 2.5;
  config.mesh.dp = 3;
  return config;
}

TEST(ResolveSupervisedTest, FillsInSettingsOfDataAndMesh) {
  Config config = SmallRun();
  config.data.reviews = std::filesystem::relative(config.data.reviews).string();
  ASSERT_TRUE(ResolveSupervised(&config).ok());
  EXPECT_EQ(config.model.vocab_size, 47);
  EXPECT_EQ(config.fleet.learners, 3);
  EXPECT_EQ(config.data.reviews,
            std::filesystem::path(SupervisedFixture("reviews.csv")).lexically_normal().string());
  EXPECT_TRUE(std::filesystem::path(config.log.dir).is_absolute());
  EXPECT_EQ(config.run.max_updates, 8);
  EXPECT_EQ(config.run.total_steps, 24 + 10);
  EXPECT_THAT(config.data_identity, ::testing::HasSubstr("12 reviews to learn"));
}

// The config of a resumed run is resolved again.
TEST(ResolveSupervisedTest, ResolvedConfigStaysUnchanged) {
  Config config = SmallRun();
  ASSERT_TRUE(ResolveSupervised(&config).ok());
  const Config resolved = config;
  ASSERT_TRUE(ResolveSupervised(&config).ok());
  EXPECT_EQ(config, resolved);
  config.run.max_updates = 3;
  ASSERT_TRUE(ResolveSupervised(&config).ok());
  EXPECT_EQ(config.run.max_updates, 3);
  EXPECT_EQ(config.run.total_steps, 12);
}

TEST(ResolveSupervisedTest, CountsWorkersOfMesh) {
  Config config = SmallRun();
  config.learner.sync = LearnerSync::kParamServer;
  config.paramserver.mode = SyncMode::kAsync;
  config.paramserver.push_every = config.paramserver.pull_every = 0;
  config.mesh.dp = 0;
  config.mesh.tp = 2;
  config.fleet.learners = 5;
  ASSERT_TRUE(ResolveSupervised(&config).ok());
  EXPECT_EQ(config.mesh.dp, 2);
  EXPECT_EQ(config.fleet.learners, 4);
  EXPECT_EQ(config.paramserver.push_every, 3);
  EXPECT_EQ(config.paramserver.pull_every, 3);
  // Two workers push the gradients of 3 batches each: 8 batches need 16 / 3 pushes, rounded up.
  EXPECT_EQ(config.run.max_updates, 6);
}

TEST(ResolveSupervisedTest, ReplacesIdentityOfOtherData) {
  Config config = SmallRun();
  config.data_identity = "other data";
  ASSERT_TRUE(ResolveSupervised(&config).ok());
  EXPECT_NE(config.data_identity, "other data");
}

TEST(ResolveSupervisedTest, RejectsMissingPretrainedModel) {
  const TempFolder folder;
  Config config = SmallRun();
  config.model.pretrained = folder.path() + "/none";
  const Status refused = ResolveSupervised(&config);
  EXPECT_EQ(refused.code(), Code::kNotFound);
  EXPECT_THAT(refused.message(), ::testing::HasSubstr("/none: no such folder"));
}

TEST(ResolveSupervisedTest, LeavesReinforcementLearningConfigUnchanged) {
  Config config;
  config.data.reviews = "none";
  const Config before = config;
  EXPECT_TRUE(ResolveSupervised(&config).ok());
  EXPECT_EQ(config, before);
}

}  // namespace
}  // namespace troop
