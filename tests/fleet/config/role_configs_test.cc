#include "fleet/config/role_configs.h"
#include "core/config/enum_names.h"

#include <gtest/gtest.h>

#include <string>

#include "paramserver/codec/gradient_codec.h"
#include "tests/fleet/config/config_choices.h"

namespace troop {
namespace {

TEST(RoleConfigsTest, ReplaySetupTakesKeysOfOtherSections) {
  Config config;
  config.seed = 5;
  config.replay.capacity_items = 77;
  config.actor.n_step = 4;
  config.env.frame_stack = 2;
  config.learner.batch_size = 9;
  const ReplaySetup setup = ReplaySetupOf(config);
  EXPECT_EQ(setup.seed, 5);
  EXPECT_EQ(setup.replay, config.replay);
  EXPECT_EQ(setup.n_step, 4);
  EXPECT_EQ(setup.frame_stack, 2);
  EXPECT_EQ(setup.batch_size, 9);
}

TEST(RoleConfigsTest, ShardConfigTakesKeysOfOtherSections) {
  Config config;
  config.seed = 5;
  config.learner.sync = LearnerSync::kParamServer;
  config.learner.algorithm = AlgorithmKind::kDpg;
  config.fleet.learners = 6;
  config.mesh.tp = 2;
  config.run.max_updates = 8;
  config.checkpoint.every_s = 3;
  config.fleet.heartbeat_timeout_s = 4;
  config.fleet.stall_timeout_s = 11;
  config.optimizer.type = OptimizerType::kSgd;
  config.paramserver.lease_s = 12;
  const ShardConfig shards = ShardConfigOf(config);
  EXPECT_EQ(shards.seed, 5);
  EXPECT_EQ(shards.model.algorithm, AlgorithmKind::kDpg);
  EXPECT_EQ(shards.workers, 3);  // groups of two learners
  EXPECT_EQ(shards.max_updates, 8);
  EXPECT_EQ(shards.snapshot_every_s, 3);
  EXPECT_EQ(shards.heartbeat_timeout_s, 4);
  EXPECT_EQ(shards.stall_timeout_s, 11);
  EXPECT_EQ(shards.optimizer, config.optimizer);
  EXPECT_EQ(shards.paramserver, config.paramserver);
  EXPECT_EQ(WeightsConfigOf(config).sync, LearnerSync::kParamServer);
  EXPECT_EQ(WeightsConfigOf(config).paramserver, config.paramserver);
}

TEST(RoleConfigsTest, CountsServersWithTheirBackups) {
  Config config;
  EXPECT_EQ(ParameterServersOf(config), 1);
  config.paramserver.shards = 3;
  config.paramserver.backup = true;
  EXPECT_EQ(ParameterServersOf(config), 1);  // one weight publisher
  config.learner.sync = LearnerSync::kParamServer;
  EXPECT_EQ(ParameterServersOf(config), 6);
}

TEST(RoleConfigsTest, EveryCompressionOfGradientsHasACodec) {
  for (const ConfigChoice& choice : ConfigChoices("paramserver.compression")) {
    const auto codec = ParseEnum<GradientCodec>(choice.value);
    ASSERT_TRUE(codec.has_value()) << choice.value;
    EXPECT_EQ(EnumName(*codec), choice.value);
  }
}

// The rule of linear.solver is that of shards and threads, and pushes have no zeros.
TEST(RoleConfigsTest, LinearModelsHaveTheRuleOfTheirSolver) {
  Config config;
  config.learner.sync = LearnerSync::kParamServer;
  EXPECT_EQ(TrainingConfigOf(config).paramserver.compression, GradientCodec::kNone);
  config.model.architecture = ModelArchitecture::kLinear;
  config.learner.algorithm = AlgorithmKind::kClassifier;
  for (const auto& [solver, type] : {std::pair(LinearSolver::kSgd, OptimizerType::kSgd),
                                     {LinearSolver::kAdaGrad, OptimizerType::kAdaGrad}}) {
    config.linear.solver = solver;
    const TrainingConfig training = TrainingConfigOf(config);
    EXPECT_EQ(training.optimizer.type, type);
    EXPECT_EQ(ShardConfigOf(config).optimizer.type, type);
    EXPECT_EQ(training.paramserver.compression, GradientCodec::kTopK);
    EXPECT_EQ(training.paramserver.topk_ratio, 1);
  }
  // Given settings are kept, and values are pushed as they are.
  config.paramserver.compression = GradientCodec::kStrom;
  EXPECT_EQ(TrainingConfigOf(config).paramserver.compression, GradientCodec::kStrom);
  config.paramserver.compression = GradientCodec::kNone;
  config.paramserver.mode = SyncMode::kLocalSgd;
  EXPECT_EQ(TrainingConfigOf(config).paramserver.compression, GradientCodec::kNone);
}

}  // namespace
}  // namespace troop
