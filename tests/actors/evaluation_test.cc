#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "actors/evaluator_node.h"
#include "nn/model.h"

namespace troop {
namespace {

Config CartPole() {
  Config config;
  config.env.id = "CartPole-v1";
  config.evaluator.envs = 4;
  return config;
}

std::vector<float> Weights(const Config& config) {
  const auto env = MakeEnvironment(config.env.id, EnvOptionsFor(config));
  const auto module = MakeNetwork(config, (*env)->spec());
  std::vector<float> weights(std::size_t(ParameterCount(**module)));
  InitParameters(**module, 1, weights);
  return weights;
}

std::unique_ptr<Evaluation> Played(const Config& config, std::int64_t episodes, std::uint64_t round,
                                   int steps_at_once) {
  auto made = Evaluation::Make(config, episodes, round, 5, Weights(config));
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  while (!(*made)->Advance(steps_at_once)) {
  }
  return std::move(*made);
}

TEST(EvaluationTest, PlaysExactlyTheEpisodesAskedForAndReportsThem) {
  const auto evaluation = Played(CartPole(), 10, 0, 64);
  const EvaluationReport report = evaluation->Report();
  EXPECT_EQ(report.episodes, 10);
  EXPECT_EQ(report.weights_version, 5u);
  ASSERT_EQ(evaluation->returns().size(), 10u);
  double sum = 0;
  for (const double r : evaluation->returns()) {
    sum += r;
    EXPECT_GE(r, report.return_min);
    EXPECT_LE(r, report.return_max);
  }
  EXPECT_DOUBLE_EQ(report.return_mean, sum / 10);
  EXPECT_DOUBLE_EQ(report.length_mean, sum / 10);  // CartPole: a reward of 1 a step
}

TEST(EvaluationTest, IsTheSameInSlicesOfAnySize) {
  const auto small = Played(CartPole(), 7, 3, 1), large = Played(CartPole(), 7, 3, 1000);
  EXPECT_TRUE(std::ranges::equal(small->returns(), large->returns()));
}

TEST(EvaluationTest, OtherRoundsPlayOtherEpisodes) {
  const auto a = Played(CartPole(), 8, 0, 64), b = Played(CartPole(), 8, 1, 64);
  EXPECT_FALSE(std::ranges::equal(a->returns(), b->returns()));
}

// Episodes of one environment alone are those it plays beside others: nothing but its index counts.
TEST(EvaluationTest, EachEnvironmentPlaysItsShareHoweverShortItsEpisodesAre) {
  Config config = CartPole();
  config.evaluator.envs = 2;
  const auto two = Played(config, 6, 0, 64);
  config.evaluator.envs = 1;
  const auto one = Played(config, 3, 0, 64);  // environment 0's share of the six
  std::multiset<double> all(two->returns().begin(), two->returns().end());
  for (const double r : one->returns()) {
    const auto found = all.find(r);
    ASSERT_NE(found, all.end()) << r;
    all.erase(found);
  }
}

TEST(EvaluationTest, FewerEpisodesThanEnvironmentsNeedFewerEnvironments) {
  EXPECT_EQ(Played(CartPole(), 2, 0, 64)->Report().episodes, 2);
}

TEST(EvaluationTest, OfNoEpisodesIsRefused) {
  EXPECT_EQ(Evaluation::Make(CartPole(), 0, 0, 1, Weights(CartPole())).status().code(),
            Code::kInvalidArgument);
}

}  // namespace
}  // namespace troop
