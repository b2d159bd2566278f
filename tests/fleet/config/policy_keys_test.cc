#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/config/config.h"

namespace troop {
namespace {

using testing::HasSubstr;

// Keys of the algorithms that train a policy and critics, where they contradict others.
TEST(PolicyKeysTest, RejectsImpossibleCombinations) {
  const std::string linear = "{type=\"linear\", units=8}";
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"network.critic_layers=[" + linear + "]"},
       "only learner.algorithm = \"dpg\", \"td3\", \"sac\", \"vtrace\" or \"ppo\" has a critic or "
       "value "
       "network"},
      {{"network.initial_log_std=-1"}, "-1 is supported by learner.algorithm = \"vtrace\" and"},
      {{"learner.algorithm=sac", "network.initial_log_std=-1"},
       "-1 is supported by learner.algorithm = \"vtrace\" and"},
      {{"optimizer.policy_learning_rate=1"},
       "only learner.algorithm = \"dpg\", \"td3\" or \"sac\" has a separate policy network"},
      {{"actor.epsilon_steps=100", "learner.algorithm=dpg"},
       "actor.epsilon_steps=100: continuous actions use noise for exploration"},
      {{"actor.epsilon_steps=100", "learner.algorithm=td3"},
       "actor.epsilon_steps=100: continuous actions use noise for exploration"},
      {{"learner.algorithm=dpg", "optimizer.policy_learning_rate=1", "learner.sync=paramserver"},
       "parameter shards use one learning rate"},
      {{"learner.hogwild_threads=2", "learner.algorithm=dpg", "optimizer.policy_learning_rate=0.1"},
       "Hogwild threads share one learning rate"},
      {{"learner.algorithm=td3", "inference.device=cuda"},
       "the policy of learner.algorithm = \"td3\" runs on the CPU only"},
      {{"learner.algorithm=td3", "learner.critic=categorical"},
       "td3 uses the smaller of two values, which distributions do not have"},
      {{"learner.algorithm=td3", "learner.sync=paramserver"},
       "parameter shards update all weights at once; set 1"},
      {{"learner.algorithm=td3", "learner.hogwild_threads=2"},
       "Hogwild threads update all weights at once; set 1"},
      {{"learner.policy_delay=3"},
       "is supported by learner.algorithm = \"td3\" only; omit it, or change learner.algorithm"},
      {{"learner.algorithm=dpg", "learner.target_policy_noise=0"}, "\"td3\" only"},
      {{"learner.algorithm=dpg", "learner.target_noise_clip=1"}, "\"td3\" only"},
      {{"actor.noise_sigma=0.1"}, "\"dpg\" or \"td3\" only"},
      {{"actor.noise_alpha=1"}, "\"dpg\" or \"td3\" only"},
      {{"learner.action_gradient_clip=0"}, "\"dpg\" or \"td3\" only"},
      {{"learner.algorithm=sac", "actor.noise_sigma=0.1"}, "\"dpg\" or \"td3\" only"},
      {{"learner.algorithm=sac", "actor.noise_alpha=1"}, "\"dpg\" or \"td3\" only"},
      {{"learner.algorithm=sac", "learner.action_gradient_clip=0"}, "\"dpg\" or \"td3\" only"},
      {{"learner.algorithm=sac", "learner.policy_delay=1"}, "\"td3\" only"},
      {{"learner.algorithm=sac", "actor.epsilon_steps=100"},
       "continuous actions use samples of the policy for exploration; set 0"},
      {{"learner.algorithm=sac", "learner.critic=categorical"},
       "sac uses the smaller of two values, which distributions do not have"},
      {{"learner.algorithm=sac", "inference.device=cuda"},
       "the policy of learner.algorithm = \"sac\" runs on the CPU only"},
      {{"learner.algorithm=sac", "learner.learn_temperature=false", "learner.target_entropy=-3"},
       "has no effect on a fixed temperature"},
      {{"learner.algorithm=sac", "learner.initial_temperature=0"}, "learner.initial_temperature"},
      {{"learner.learn_temperature=false"},
       "is supported by learner.algorithm = \"sac\" only; omit it, or change learner.algorithm"},
      {{"learner.algorithm=td3", "learner.initial_temperature=2"}, "\"sac\" only"},
      {{"learner.algorithm=dpg", "learner.target_entropy=-1"}, "\"sac\" only"},
      {{"learner.v_min=-1"}, "is supported by learner.critic = \"categorical\" only"},
      {{"learner.critic=quantile", "learner.v_max=1"}, "\"categorical\" only"},
      {{"learner.atoms=7"}, "\"categorical\" or \"quantile\" only"},
  };
  for (const auto& [overrides, error] : cases)
    EXPECT_THAT(ParseConfig("", "run.toml", overrides).status().message(), HasSubstr(error));
}

TEST(PolicyKeysTest, Td3WithoutDelayTrainsOnShards) {
  const std::vector<std::string> overrides{"learner.algorithm=td3", "learner.policy_delay=1",
                                           "learner.sync=paramserver"};
  const auto config = ParseConfig("", "run.toml", overrides);
  EXPECT_TRUE(config.ok()) << config.status().ToString();
}

TEST(PolicyKeysTest, SacTrainsOnShardsAndThreads) {
  for (const std::string more : {"learner.sync=paramserver", "learner.hogwild_threads=2"}) {
    const std::vector<std::string> overrides{"learner.algorithm=sac", more};
    const auto config = ParseConfig("", "run.toml", overrides);
    EXPECT_TRUE(config.ok()) << config.status().ToString();
  }
}

}  // namespace
}  // namespace troop
