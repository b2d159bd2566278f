#include "learners/training_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/config/config.h"
#include "fleet/config/role_configs.h"

namespace troop {
namespace {

// A config in which the keys that learners use have values other than the defaults.
Config AlteredConfig() {
  Config config;
  config.seed = 7;
  config.run.max_updates = 12;
  config.fleet.mode = FleetMode::kSerial;
  config.fleet.learners = 3;
  config.fleet.shutdown_grace_s = 9;
  config.env.id = "Pong";
  config.env.frame_stack = 4;
  config.env.observation_clip = 3;
  config.env.reward_clip = 2;
  config.env.normalize_rewards = true;
  config.actor.n_step = 5;
  config.actor.insert_copies = 6;
  config.learner.algorithm = AlgorithmKind::kDpg;
  config.learner.critic = CriticKind::kCategorical;
  config.learner.atoms = 31;
  config.learner.v_min = -1;
  config.learner.v_max = 2;
  config.learner.action_gradient_clip = 0.5;
  config.network.dueling = false;
  config.replay.beta = 0.7;
  config.data.max_length = 64;
  config.model.hidden_size = 32;
  config.mesh.tp = 2;
  config.paramserver.shards = 4;
  config.optimizer.type = OptimizerType::kSgd;
  config.checkpoint.keep = 8;
  config.evaluator.enabled = false;
  config.log.dir = "elsewhere";
  config.data_identity = "12 reviews";
  return config;
}

TEST(TrainingConfigTest, HasSectionsAndSingleKeysOfConfig) {
  const Config config = AlteredConfig();
  const TrainingConfig training = TrainingConfigOf(config);
  EXPECT_EQ(training.seed, 7);
  EXPECT_EQ(training.run, config.run);
  EXPECT_EQ(training.network, config.network);
  EXPECT_EQ(training.replay, config.replay);
  EXPECT_EQ(training.learner, config.learner);
  EXPECT_EQ(training.data, config.data);
  EXPECT_EQ(training.model, config.model);
  EXPECT_EQ(training.mesh, config.mesh);
  EXPECT_EQ(training.paramserver, config.paramserver);
  EXPECT_EQ(training.optimizer, config.optimizer);
  EXPECT_EQ(training.checkpoint, config.checkpoint);
  EXPECT_EQ(training.learners, 3);
  EXPECT_TRUE(training.serial);
  EXPECT_EQ(training.shutdown_grace_s, 9);
  EXPECT_EQ(training.env_id, "Pong");
  EXPECT_EQ(training.frame_stack, 4);
  EXPECT_EQ(training.observation_clip, 3);
  EXPECT_EQ(training.reward_clip, 2);
  EXPECT_TRUE(training.normalize_rewards);
  EXPECT_EQ(training.n_step, 5);
  EXPECT_EQ(training.insert_copies, 6);
  EXPECT_FALSE(training.evaluator_enabled);
  EXPECT_EQ(training.log_dir, "elsewhere");
  EXPECT_EQ(training.data_identity, "12 reviews");
}

TEST(TrainingConfigTest, DefaultsAreThoseOfConfigKeys) {
  const TrainingConfig training = TrainingConfigOf(Config()), plain;
  EXPECT_EQ(training.seed, plain.seed);
  EXPECT_EQ(training.learners, plain.learners);
  EXPECT_EQ(training.serial, plain.serial);
  EXPECT_EQ(training.shutdown_grace_s, plain.shutdown_grace_s);
  EXPECT_EQ(training.frame_stack, plain.frame_stack);
  EXPECT_EQ(training.observation_clip, plain.observation_clip);
  EXPECT_EQ(training.reward_clip, plain.reward_clip);
  EXPECT_EQ(training.normalize_rewards, plain.normalize_rewards);
  EXPECT_EQ(training.n_step, plain.n_step);
  EXPECT_EQ(training.insert_copies, plain.insert_copies);
  EXPECT_EQ(training.evaluator_enabled, plain.evaluator_enabled);
  EXPECT_EQ(training.log_dir, plain.log_dir);
}

TEST(TrainingConfigTest, TextIsTheWholeConfig) {
  const Config config;
  const auto parsed = ParseConfig(TrainingConfigOf(config).config_toml, "state.json", {});
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(*parsed, config);
}

TEST(TrainingConfigTest, ParsesConfigOfCheckpoint) {
  Config config;
  config.learner.gamma = 0.98;
  config.replay.beta = 0.5;
  const TrainingConfig saved = TrainingConfigOf(config);
  const auto parsed = ParseTrainingConfig(saved.config_toml, "state.json");
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(parsed->learner, saved.learner);
  EXPECT_EQ(parsed->config_toml, saved.config_toml);
  const auto damaged = ParseTrainingConfig("nothing = 1", "state.json");
  EXPECT_EQ(damaged.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(damaged.status().message(), ::testing::StartsWith("state.json:1: "));
}

// `troop scale` changes these counts during a run; learners that start later have the new ones.
TEST(TrainingConfigTest, GroupTokenIgnoresScaledCountsOnly) {
  const std::uint32_t token = TrainingConfigOf(Config()).group_token;
  Config scaled;
  scaled.fleet.actors = 5;
  scaled.fleet.learners = 3;
  scaled.replay.shards = 2;
  EXPECT_EQ(TrainingConfigOf(scaled).group_token, token);
  Config other;
  other.learner.batch_size = 65;
  EXPECT_NE(TrainingConfigOf(other).group_token, token);
}

TEST(TrainingConfigTest, ModelSetupHasSettingsOfModel) {
  const Config config = AlteredConfig();
  const ModelSetup setup = ModelSetupOf(TrainingConfigOf(config));
  EXPECT_EQ(setup.algorithm, AlgorithmKind::kDpg);
  EXPECT_EQ(setup.network, config.network);
  EXPECT_EQ(setup.frame_stack, 4);
  EXPECT_EQ(setup.critic, CriticKind::kCategorical);
  EXPECT_EQ(setup.atoms, 31);
  EXPECT_EQ(setup.v_min, -1);
  EXPECT_EQ(setup.v_max, 2);
  EXPECT_EQ(setup.action_gradient_clip, 0.5);
  EXPECT_EQ(setup.model, config.model);
  EXPECT_EQ(setup.max_length, 64);
}

}  // namespace
}  // namespace troop
