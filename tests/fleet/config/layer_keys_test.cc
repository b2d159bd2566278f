#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/config/config.h"

namespace troop {
namespace {

using testing::HasSubstr;

Result<Config> Parse(const std::string& override) {
  return ParseConfig("", "run.toml", std::vector<std::string>{override});
}

// Keys of a layer that its type does not have, lacks, or can't use.
TEST(LayerKeysTest, RejectsWhatTypeDoesNotHave) {
  const std::pair<std::string, std::string> cases[] = {
      {"network.layers=[{type=\"linear\", units=4},{type=\"conv2d\", filters=4, kernel=3}]",
       "network.layers[1]: a conv2d layer can't follow"},
      {"network.layers=[{type=\"conv2d\", kernel=3}]",
       "network.layers[0]: a conv2d layer needs filters"},
      {"network.layers=[{type=\"conv2d\", filters=3}]", "a conv2d layer needs a kernel"},
      {"network.layers=[{type=\"conv2d\", filters=3, kernel=3, units=3}]", "has no units"},
      {"network.layers=[{type=\"linear\"}]", "network.layers[0]: a linear layer needs units"},
      {"network.layers=[{type=\"linear\", units=3, stride=2}]", "has no filters, kernel or stride"},
      {"network.layers=[{type=\"layer_norm\", units=3}]", "a layer_norm layer keeps the shape"},
      {"network.layers=[{type=\"linear\", units=3, padding=1}]",
       "only conv2d and max_pool layers have padding"},
      {"network.layers=[{type=\"max_pool\"}]", "a max_pool layer needs a kernel"},
      {"network.layers=[{type=\"max_pool\", kernel=2, filters=3}]",
       "a max_pool layer keeps the channels"},
      {"network.layers=[{type=\"max_pool\", kernel=2, activation=\"tanh\"}]",
       "a max_pool layer has no activation"},
      {"network.layers=[{type=\"max_pool\", kernel=3, padding=2}]",
       "padding = 2 is more than half of kernel = 3"},
      {"network.layers=[{type=\"residual\", kernel=3, stride=2}]",
       "a residual layer keeps the shape"},
      {"network.layers=[{type=\"residual\", kernel=4}]",
       "a residual layer needs an odd kernel, not 4"},
      {"network.layers=[{type=\"linear\", units=4},{type=\"residual\", kernel=3}]",
       "network.layers[1]: a residual layer can't follow"},
  };
  for (const auto& [layers, error] : cases)
    EXPECT_THAT(Parse(layers).status().message(), HasSubstr(error));
}

TEST(LayerKeysTest, AcceptsDeepNetworkForImages) {
  const auto config = Parse(
      "network.layers=[{type=\"conv2d\", filters=16, kernel=3, padding=1, activation=\"none\"}, "
      "{type=\"max_pool\", kernel=3, stride=2, padding=1}, "
      "{type=\"residual\", kernel=3, activation=\"none\"}, {type=\"linear\", units=8}]");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->network.layers[1].padding, 1);
}

Status ParseAll(const std::vector<std::string>& overrides) {
  return ParseConfig("", "run.toml", overrides).status();
}

TEST(NoisyKeysTest, RejectsWhatNoiseReplacesOrDoesNotReach) {
  const std::string noisy = "network.noisy=true";
  EXPECT_TRUE(ParseAll({noisy}).ok());
  EXPECT_TRUE(ParseAll({noisy, "network.noisy_sigma=0.1", "actor.epsilon_base=0"}).ok());
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"network.noisy_sigma=0.1"},
       "network.noisy_sigma=0.1: 0.1 has no effect without noisy layers; omit it, or set "
       "network.noisy = true"},
      {{noisy, "actor.epsilon_base=0.1"},
       "actor.epsilon_base=0.1: 0.1 has no effect on network.noisy = true, whose noise explores in "
       "place of ε; omit it, or set 0"},
      {{noisy, "actor.epsilon_alpha=3"}, "actor.epsilon_alpha=3: 3 has no effect"},
      {{noisy, "actor.epsilon_steps=1000"}, "actor.epsilon_steps=1000: 1000 has no effect"},
      {{noisy, "learner.hogwild_threads=2"}, "Hogwild threads would share their noise"},
      {{noisy, "network.noisy_sigma=0"}, "network.noisy_sigma=0: "},
  };
  for (const auto& [overrides, error] : cases)
    EXPECT_THAT(ParseAll(overrides).message(), HasSubstr(error));
}

// Every algorithm but dqn.
TEST(NoisyKeysTest, OtherAlgorithmsRefuseNoiseInOneLine) {
  for (const std::string_view name : EnumNames(AlgorithmKind())) {
    if (name == "dqn" || name == "own") continue;
    const Status status =
        ParseAll({"network.noisy=true", fmt::format("learner.algorithm={}", name)});
    EXPECT_THAT(status.message(),
                HasSubstr("network.noisy=true: is supported by learner.algorithm = "
                          "\"dqn\" only, not by \"" +
                          std::string(name) + "\""))
        << name;
  }
}

}  // namespace
}  // namespace troop
