#include "apps/machine.h"

#include <gtest/gtest.h>

#include "envs/environment.h"
#include "learners/algorithm.h"

namespace troop {
namespace {

LayerConfig Linear(std::int64_t units) {
  LayerConfig layer;
  layer.type = "linear";
  layer.units = units;
  return layer;
}

Config SmallConfig() {
  Config config;
  config.network.layers = {Linear(8), Linear(16)};
  return config;
}

CheckpointState CheckpointOf(const Config& config) {
  const auto env = MakeEnvironment(config.env.id, EnvOptionsFor(config));
  const auto algorithm = MakeAlgorithm(config, (*env)->spec());
  EXPECT_TRUE(algorithm.ok()) << algorithm.status().ToString();
  return {.config_toml = ToToml(config), .state = (*algorithm)->State()};
}

void ExpectRefused(const Config& config, const std::string& part) {
  const Status status = CheckResume(config, CheckpointOf(SmallConfig()), "checkpoints/7");
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  for (const std::string& word : {std::string("checkpoints/7"), part}) {
    EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
  }
}

TEST(CheckResumeTest, OtherSchedulesAndBudgetsFit) {
  Config config = SmallConfig();
  config.learner.total_steps *= 2;
  config.optimizer.learning_rate *= 2;
  config.fleet.actors += 1;
  const Status status = CheckResume(config, CheckpointOf(SmallConfig()), "checkpoints/7");
  EXPECT_TRUE(status.ok()) << status.ToString();
}

// The learner found out, and was started again for ever.
TEST(CheckResumeTest, AnotherOptimizerIsRefused) {
  Config config = SmallConfig();
  config.optimizer.type = config.optimizer.type == "adam" ? "rmsprop" : "adam";
  ExpectRefused(config, "optimizer");
}

TEST(CheckResumeTest, AnotherNetworkIsRefused) {
  Config config = SmallConfig();
  config.network.layers[0].units = 9;
  ExpectRefused(config, "another network");
  config = SmallConfig();
  config.network.dueling = !config.network.dueling;
  ExpectRefused(config, "another network");
}

TEST(CheckResumeTest, ANetworkOfEqualSizeWithOtherLayersIsRefused) {
  Config one = SmallConfig(), other = SmallConfig();
  one.env.id = other.env.id = "CartPole-v1";  // 4 inputs, 2 actions
  one.network.dueling = other.network.dueling = false;
  // Each parameter takes a multiple of 16 floats: as many for both.
  one.network.layers = {Linear(5), Linear(6)};
  other.network.layers = {Linear(6), Linear(5)};
  const CheckpointState checkpoint = CheckpointOf(one);
  ASSERT_EQ(checkpoint.state.tensors.at("value").spec(),
            CheckpointOf(other).state.tensors.at("value").spec());
  EXPECT_TRUE(CheckResume(one, checkpoint, "c").ok());
  EXPECT_EQ(CheckResume(other, checkpoint, "c").code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace troop
