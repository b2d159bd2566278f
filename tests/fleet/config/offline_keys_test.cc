#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/config/config.h"

namespace troop {
namespace {

using testing::HasSubstr;

// Keys of learning from recorded episodes, where they contradict others.
TEST(OfflineKeysTest, RejectsImpossibleCombinations) {
  const std::string episodes = "learner.demonstrations=runs/expert",
                    all = "learner.demonstration_share=1",
                    cloning = "learner.algorithm=behavior_cloning";
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{cloning, all}, "imitates recorded episodes; name a run with actor.record_episodes"},
      {{cloning, episodes, "learner.demonstration_share=0.5"}, "0.5 is below 1"},
      {{episodes, "learner.demonstration_share=0.001"}, "0.001 of 64 rows rounds to 0"},
      {{episodes, "learner.demonstration_share=0.999"}, "0.999 of 64 rows rounds to 64"},
      {{episodes, "replay.placement=gpu"}, "\"gpu\" samples on the GPU"},
      {{"learner.demonstration_share=0.5"}, "0.5 has no effect without learner.demonstrations"},
      {{episodes, all}, "is 0, but a run that learns from recorded episodes alone ends with its"},
      {{episodes, all, "run.max_updates=9", "env.normalize_rewards=true"},
       "its statistics come from actors, which a run that learns from recorded episodes alone"},
  };
  for (const auto& [overrides, error] : cases)
    EXPECT_THAT(ParseConfig("", "run.toml", overrides).status().message(), HasSubstr(error));
}

TEST(OfflineKeysTest, RunWithAllItsRowsFromEpisodesHasNoActors) {
  const std::vector<std::string> some{"learner.demonstrations=runs/expert"};
  const auto mixed = ParseConfig("", "run.toml", some);
  ASSERT_TRUE(mixed.ok()) << mixed.status().ToString();
  EXPECT_TRUE(HasActors(*mixed));
  const std::vector<std::string> words{"learner.demonstrations=runs/expert",
                                       "learner.demonstration_share=1", "run.max_updates=9",
                                       "env.normalize_rewards=false"};
  const auto alone = ParseConfig("", "run.toml", words);
  ASSERT_TRUE(alone.ok()) << alone.status().ToString();
  EXPECT_TRUE(IsOffline(*alone));
  EXPECT_FALSE(HasActors(*alone));
}

}  // namespace
}  // namespace troop
