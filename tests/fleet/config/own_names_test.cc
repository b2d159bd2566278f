// Names of own algorithms and layers in a config: reading, writing, and the errors of wrong ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/config/config.h"

namespace troop {
namespace {

Result<Config> ParseOwn(std::string_view text, std::vector<std::string> overrides = {}) {
  return ParseConfig(text, "run.toml", overrides);
}

TEST(OwnNamesTest, OwnAlgorithmAndLayersAreNamedLikeBuiltInOnes) {
  const Result<Config> config = ParseOwn(R"(
[learner]
library = "lib/mine.so"
algorithm = "mine_2"
options = {rate = 0.5, deep = [1, 2]}
[network]
layers = [{type = "linear", units = 4}, {type = "gate", units = 3, options = {rank = 2}}]
)");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->learner.algorithm, AlgorithmKind::kOwn);
  EXPECT_EQ(AlgorithmName(config->learner), "mine_2");
  EXPECT_EQ(config->learner.options.size(), 2u);
  const LayerConfig& layer = config->network.layers.at(1);
  EXPECT_EQ(layer.type, LayerType::kOwn);
  EXPECT_EQ(layer.own_type, "gate");
  EXPECT_EQ(layer.units, 3);
  const std::vector<EnvOption> rank{{"rank", std::int64_t{2}}};
  EXPECT_EQ(layer.options, rank);
  const Result<Config> again = ParseOwn(ToToml(*config));
  ASSERT_TRUE(again.ok()) << again.status().ToString() << ToToml(*config);
  EXPECT_EQ(*again, *config);
  // A later source that names a built-in algorithm leaves no trace of the own one.
  const Result<Config> dqn =
      ParseOwn(ToToml(*config), {"learner.algorithm=dqn", "learner.options={}"});
  ASSERT_TRUE(dqn.ok()) << dqn.status().ToString();
  EXPECT_EQ(AlgorithmName(dqn->learner), "dqn");
  EXPECT_EQ(dqn->learner.own_algorithm, "");
}

// Without a library a name must be registered in the program, so a mistyped one is found at once.
TEST(OwnNamesTest, WrongNamesAndCombinationsAreErrors) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"learner.algorithm=dqm"},
       "learner.algorithm=dqm: \"dqm\" is unknown; use one of \"dqn\", \"dpg\", "},
      {{"learner.algorithm=dqm"}, "\"external\", \"behavior_cloning\", or name its library"},
      {{"learner.algorithm=Dqn"}, "\"Dqn\" is unknown; use one of"},
      {{"learner.algorithm=own"}, "\"own\" is unknown; use one of"},
      {{"network.layers=[{type = \"relu\"}]"}, "\"relu\" is unknown; use one of \"linear\""},
      {{"learner.options.x=1"}, "only own algorithms have options"},
      {{"learner.library=a.so"}, "no own algorithm and no own layer is used"},
      {{"network.layers=[{type = \"linear\", units = 4, options = {x = 1}}]"},
       "only own layers have options"},
      {{"learner.library=a.so", "network.precision=bf16", "network.layers=[{type = \"mine\"}]"},
       "own layers compute in fp32"}};
  for (const auto& [overrides, part] : cases) {
    const Result<Config> config = ParseOwn("", overrides);
    ASSERT_FALSE(config.ok()) << part;
    EXPECT_THAT(config.status().message(), testing::HasSubstr(part));
    EXPECT_EQ(config.status().message().find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace troop
