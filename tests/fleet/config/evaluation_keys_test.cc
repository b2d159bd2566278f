#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/config/config.h"

namespace troop {
namespace {

using testing::HasSubstr;

Result<Config> Parse(std::string_view text, std::vector<std::string> overrides = {}) {
  return ParseConfig(text, "run.toml", overrides);
}

TEST(EvaluationKeysTest, ReadsNestedSectionAndOverrides) {
  const auto config = Parse(
      "[evaluator]\nepisodes = 3\n[evaluator.env]\nmax_episode_steps = 40\n"
      "[evaluator.env.options]\nwind = 0.5\n",
      {"evaluator.env.options.size=9"});
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->evaluator.episodes, 3);
  EXPECT_EQ(config->evaluator.env.max_episode_steps, 40);
  const std::vector<EnvOption> want{{"size", std::int64_t{9}}, {"wind", 0.5}};
  EXPECT_EQ(config->evaluator.env.options, want);
  EXPECT_TRUE(config->env.options.empty());
  EXPECT_EQ(*Parse(ToToml(*config)), *config) << ToToml(*config);
}

TEST(EvaluationKeysTest, UnknownKeyNamesNearestOne) {
  const std::string error(Parse("[evaluator.env]\nmax_episode_step = 40").status().message());
  EXPECT_THAT(error, HasSubstr("run.toml:2: evaluator.env.max_episode_step: "));
  EXPECT_THAT(error, HasSubstr("evaluator.env.max_episode_steps"));
}

TEST(EvaluationKeysTest, ReportsSettingsThatEnvironmentLacks) {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"evaluator.env.sticky_actions=-0.5"},
       "neither a probability nor -1 (the environment's own"},
      {{"evaluator.env.sticky_actions=-1.5"}, "nor -2 (env.sticky_actions)"},
      {{"evaluator.env.noop_max=4"},
       "evaluator.env.noop_max=4: is supported for Atari games (\"ALE/...\") only, not for "
       "\"CartPole-v1\"; omit it"},
      {{"evaluator.env.difficulty_ramping=on", "env.id=MinAtar/Asterix-v1",
        "evaluator.env.id=Catch-v0"},
       "is supported for MinAtar games only, not for \"Catch-v0\""},
      {{"env.plugin=mine.so", "evaluator.env.wrappers=[\"a:b\"]"},
       "apply to Python environments only, not to a plug-in"},
      {{"evaluator.env.id=envpool:Pong-v5", "fleet.mode=serial"}, "takes one seed per pool"},
      {{"learner.algorithm=classifier", "data.reviews=r", "data.vocabulary=v",
        "evaluator.env.seed=3"},
       "evaluator.env: has no effect with learner.algorithm = \"classifier\", which has no "
       "environment; omit it"}};
  for (const auto& [overrides, message] : cases) {
    const std::string error(Parse("", overrides).status().message());
    EXPECT_THAT(error, HasSubstr(message));
    EXPECT_EQ(error.find('\n'), error.npos) << error;
  }
}

TEST(EvaluationKeysTest, AcceptsSettingsThatOnlyEvaluationEnvironmentHas) {
  EXPECT_TRUE(Parse("", {"env.id=MinAtar/Asterix-v1", "evaluator.env.difficulty_ramping=off",
                         "evaluator.env.sticky_actions=0"})
                  .ok());
  EXPECT_TRUE(Parse("", {"env.id=ALE/Pong-v5", "evaluator.env.noop_max=0"}).ok());
}

}  // namespace
}  // namespace troop
