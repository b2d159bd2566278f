#include "fleet/config/target_advice.h"

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

TEST(TargetAdviceTest, NamesKeysAndValuesOfPaper) {
  const std::map<std::string, std::string> wanted{
      {"dpg", "set 100 and 1"}, {"td3", "set 2 and 0.005"}, {"sac", "set 1 and 0.005"}};
  for (const auto& [algorithm, values] : wanted) {
    EXPECT_EQ(
        TargetAdvice(With({kPendulum, "learner.algorithm=" + algorithm})),
        "learner.target_update_every_updates is 500 and learner.target_tau is 1, the defaults "
        "for dqn; " +
            values + " for " + algorithm + ", as in its paper");
  }
  EXPECT_NE(TargetAdvice(With({kPendulum, "learner.algorithm=td3", "learner.policy_delay=3"}))
                .find("set 3 and 0.005"),
            std::string::npos);
}

TEST(TargetAdviceTest, IsEmptyForDqnAndAfterAnyChange) {
  EXPECT_EQ(TargetAdvice(With({})), "");
  for (const char* key : {"learner.target_update_every_updates=2", "learner.target_tau=0.005"})
    EXPECT_EQ(TargetAdvice(With({kPendulum, "learner.algorithm=sac", key})), "") << key;
}

// The configs of this repository follow the advice.
TEST(TargetAdviceTest, IsEmptyForConfigsOfTheRepository) {
  for (const char* name : {"apex_dpg_paper", "apex_pendulum", "td3_pendulum", "sac_pendulum"}) {
    const auto config =
        LoadConfigFile(std::string(TROOP_SOURCE_DIR "/configs/") + name + ".toml", {});
    ASSERT_TRUE(config.ok()) << config.status().ToString();
    EXPECT_EQ(TargetAdvice(*config), "") << name;
  }
}

}  // namespace
}  // namespace troop
