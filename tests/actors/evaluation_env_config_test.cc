#include "actors/evaluation_env_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "actors/evaluator_node.h"
#include "core/base/philox.h"
#include "nn/models/model.h"

namespace troop {
namespace {

using testing::ElementsAre;

TEST(EvaluationEnvTest, DefaultIsTrainingEnvironment) {
  const EnvConfig training{.id = "python:m:make",
                           .max_episode_steps = 7,
                           .sticky_actions = 0.25,
                           .difficulty_ramping = false,
                           .reward_scale = 0.1,
                           .noop_max = 3,
                           .options = {{"a", std::int64_t{1}}},
                           .wrappers = {"m:W"}};
  EXPECT_EQ(EvaluationEnv(training, {}), training);
}

TEST(EvaluationEnvTest, OptionsReplaceAndExtendThoseOfTrainingByName) {
  const EnvConfig training{.options = {{"b", std::int64_t{1}}, {"d", 0.5}}};
  const EnvConfig env = EvaluationEnv(
      training, {.options = {{"a", true}, {"b", std::int64_t{2}}, {"e", std::string("x")}}});
  const std::vector<EnvOption> want{
      {"a", true}, {"b", std::int64_t{2}}, {"d", 0.5}, {"e", std::string("x")}};
  EXPECT_EQ(env.options, want);
  EXPECT_EQ(training.options.size(), 2u);
}

TEST(EvaluationEnvTest, WrappersOfTrainingStandWhereTheirNameIs) {
  const EnvConfig training{.wrappers = {"m:A", "m:B"}};
  EXPECT_THAT(EvaluationEnv(training, {.wrappers = {"m:In", kTrainingWrappers, "m:Out"}}).wrappers,
              ElementsAre("m:In", "m:A", "m:B", "m:Out"));
  EXPECT_TRUE(EvaluationEnv(training, {.wrappers = {}}).wrappers.empty());
}

// 0 steps (no limit), -1 (the environment's own) and 0 no-ops are values, not "as in training".
TEST(EvaluationEnvTest, ValuesThatDisableASettingCount) {
  const EnvConfig training{
      .max_episode_steps = 9, .sticky_actions = 0.25, .difficulty_ramping = true, .noop_max = 30};
  const EnvConfig env = EvaluationEnv(training, {.max_episode_steps = 0,
                                                 .sticky_actions = 0,
                                                 .difficulty_ramping = EvaluationSwitch::kOff,
                                                 .noop_max = 0,
                                                 .reward_scale = 10});
  EXPECT_EQ(env.max_episode_steps, 0);
  EXPECT_EQ(env.sticky_actions, 0);
  EXPECT_FALSE(env.difficulty_ramping);
  EXPECT_EQ(env.noop_max, 0);
  EXPECT_EQ(env.reward_scale, 10);
  EXPECT_EQ(EvaluationEnv(training, {.max_episode_steps = -1}).max_episode_steps, -1);
}

// The generator of plug-ins: splitmix64, by Steele et al. 2014.
class SplitMix {
 public:
  explicit SplitMix(std::uint64_t seed) : state_(seed) {}
  std::int64_t Below(std::int64_t count) {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return std::int64_t(double((z ^ (z >> 31)) >> 11) / 9007199254740992.0 * double(count));
  }

 private:
  std::uint64_t state_;
};

// The shop of examples/cpp_environment, whose policy orders nothing: all weights are 0, and the
// first of equal values is chosen.
class ShopEvaluationTest : public testing::Test {
 protected:
  ShopEvaluationTest() {
    config_.env.id = "Inventory-v0";
    config_.env.plugin = TROOP_PLUGIN_FOLDER "/inventory.so";
    config_.env.isolation = Isolation::kNone;
    config_.env.options = {{"demand_max", std::int64_t{2}}, {"profit", 5.0}};
    config_.evaluator.envs = 1;
  }
  std::vector<double> Returns(std::int64_t episodes, std::uint64_t round) const {
    const auto env = MakeEnvironment(config_.env.id, EnvOptionsFor(config_.env, true));
    const auto module = MakeNetwork(config_.model, (*env)->spec());
    const std::vector<float> weights(std::size_t(ParameterCount(**module)), 0);
    const auto made =
        EpisodeEvaluator::Make(config_, {.episodes = episodes, .round = round}, weights);
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    if (!made.ok()) return {};
    while ((*made)->Advance(64) != EpisodeEvaluator::State::kOver) {
    }
    return {(*made)->returns().begin(), (*made)->returns().end()};
  }
  // Plays an episode by the rules in the comment of the example.
  static double ReturnOf(std::uint64_t seed, std::int64_t demand_max, double profit, int weeks) {
    SplitMix random(seed);
    double sum = 0;
    std::int64_t stock = 10;
    for (int week = 0; week < weeks; ++week) {
      const std::int64_t sold = std::min(stock, random.Below(demand_max + 1));
      stock -= sold;
      sum += float(profit * double(sold) - 0.5 * double(stock));
    }
    return sum;
  }
  static std::uint64_t SeedOf(std::uint64_t run_seed, std::uint64_t round, std::uint64_t episode) {
    return DeriveSeed({.run_seed = run_seed,
                       .purpose = Purpose::kEvaluation,
                       .index = 0,
                       .episode = round << 20 | episode});
  }

  ActingConfig config_;
};

TEST_F(ShopEvaluationTest, PlaysWithOptionsAndLimitOfEvaluation) {
  EXPECT_THAT(Returns(2, 3), ElementsAre(ReturnOf(SeedOf(1, 3, 0), 2, 5, 52),
                                         ReturnOf(SeedOf(1, 3, 1), 2, 5, 52)));
  config_.evaluator.env.options = {{"profit", -40.0}};
  config_.evaluator.env.max_episode_steps = 6;
  EXPECT_THAT(Returns(2, 3), ElementsAre(ReturnOf(SeedOf(1, 3, 0), 2, -40, 6),
                                         ReturnOf(SeedOf(1, 3, 1), 2, -40, 6)));
}

TEST_F(ShopEvaluationTest, OwnSeedPlaysTheSameEpisodesInEachRoundAndRun) {
  config_.evaluator.env.seed = 11;
  for (config_.seed = 1; config_.seed < 4; ++config_.seed) {
    EXPECT_THAT(
        Returns(2, std::uint64_t(config_.seed)),
        ElementsAre(ReturnOf(SeedOf(11, 0, 0), 2, 5, 52), ReturnOf(SeedOf(11, 0, 1), 2, 5, 52)));
  }
}

TEST_F(ShopEvaluationTest, WrongOptionOfEvaluationIsAnError) {
  config_.evaluator.env.options = {{"profti", 1.0}};
  const auto made = EpisodeEvaluator::Make(config_, {.episodes = 1}, std::vector<float>(1));
  EXPECT_THAT(made.status().message(), testing::HasSubstr("profti"));
}

}  // namespace
}  // namespace troop
