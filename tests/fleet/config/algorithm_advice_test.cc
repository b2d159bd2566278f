#include "fleet/config/algorithm_advice.h"

#include <gtest/gtest.h>

#include <map>

namespace troop {
namespace {

Config With(const std::vector<std::string>& keys) {
  const auto config = ParseConfig("", "test", keys);
  EXPECT_TRUE(config.ok()) << config.status().ToString();
  return config.ok() ? *config : Config();
}

constexpr char kPendulum[] = "env.id=Pendulum-v1";

TEST(AlgorithmAdviceTest, NamesKeysAndValuesOfPaper) {
  const std::map<std::string, std::string> wanted{
      {"dpg", "set 100 and 1"}, {"td3", "set 2 and 0.005"}, {"sac", "set 1 and 0.005"}};
  for (const auto& [algorithm, values] : wanted) {
    EXPECT_EQ(
        AlgorithmAdvice(With({kPendulum, "learner.algorithm=" + algorithm})),
        "learner.target_update_every_updates is 500 and learner.target_tau is 1, the defaults "
        "for dqn; " +
            values + " for " + algorithm + ", as in its paper");
  }
  EXPECT_NE(AlgorithmAdvice(With({kPendulum, "learner.algorithm=td3", "learner.policy_delay=3"}))
                .find("set 3 and 0.005"),
            std::string::npos);
}

TEST(AlgorithmAdviceTest, NamesLambdaOfPaper) {
  const auto advice = [](std::vector<std::string> keys) {
    keys.insert(keys.end(), {"actor.unroll_length=8", "replay.max_times_sampled=1",
                             "replay.samples_per_insert=1"});
    return AlgorithmAdvice(With(keys));
  };
  EXPECT_EQ(advice({"learner.algorithm=ppo"}),
            "learner.lambda is 0.65, the default for pqn; set 0.95 for ppo, as in its paper");
  EXPECT_EQ(advice({"learner.algorithm=vtrace"}),
            "learner.lambda is 0.65, the default for pqn; set 1 for vtrace, as in its paper");
  EXPECT_EQ(advice({"learner.algorithm=vtrace", "learner.lambda=0.9"}), "");
  EXPECT_EQ(advice({"learner.algorithm=pqn"}), "");
}

TEST(AlgorithmAdviceTest, IsEmptyForDqnAndAfterAnyChange) {
  EXPECT_EQ(AlgorithmAdvice(With({})), "");
  for (const char* key : {"learner.target_update_every_updates=2", "learner.target_tau=0.005"})
    EXPECT_EQ(AlgorithmAdvice(With({kPendulum, "learner.algorithm=sac", key})), "") << key;
}

// The configs of this repository follow the advice.
TEST(AlgorithmAdviceTest, IsEmptyForConfigsOfTheRepository) {
  for (const char* name :
       {"apex_dpg_paper", "apex_pendulum", "td3_pendulum", "sac_pendulum", "pqn_cartpole",
        "ppo_cartpole", "vtrace_cartpole", "r2d2_cartpole", "rainbow_cartpole"}) {
    const auto config =
        LoadConfigFile(std::string(TROOP_SOURCE_DIR "/configs/") + name + ".toml", {});
    ASSERT_TRUE(config.ok()) << config.status().ToString();
    EXPECT_EQ(AlgorithmAdvice(*config), "") << name;
  }
}

}  // namespace
}  // namespace troop
