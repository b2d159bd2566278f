#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "actors/policy.h"

namespace troop {
namespace {

// Logits of three actions and a value. Probabilities: 1/7, 2/7, 4/7.
const std::vector<float> kRow{0, std::log(2.0F), std::log(4.0F), 9};
constexpr double kProbability[] = {1.0 / 7, 2.0 / 7, 4.0 / 7};

struct Choices {
  std::vector<std::int32_t> action;
  std::vector<float> q_taken, q_max;
};

// The choices for that row with each key.
Choices Sample(const std::vector<float>& row, std::span<const ExploreKey> keys,
               std::uint64_t seed = 5) {
  const std::size_t n = keys.size();
  Tensor out(DType::kF32, {std::int64_t(n), std::int64_t(row.size())});
  for (std::size_t i = 0; i < n; ++i)
    std::ranges::copy(row, out.as<float>().subspan(i * row.size()).begin());
  Choices choices{std::vector<std::int32_t>(n), std::vector<float>(n), std::vector<float>(n)};
  SampleActions(seed, keys, out, {choices.action, choices.q_taken, choices.q_max});
  return choices;
}

std::vector<ExploreKey> Keys(std::size_t n, double epsilon, double sigma) {
  std::vector<ExploreKey> keys(n);
  for (std::size_t i = 0; i < n; ++i)
    keys[i] = {
        .env = i % 7, .episode = i / 70, .step = i, .epsilon = epsilon, .noise_sigma = sigma};
  return keys;
}

std::vector<double> Shares(const Choices& choices) {
  std::vector<double> shares(3);
  for (const std::int32_t a : choices.action) shares[std::size_t(a)] += 1;
  for (double& s : shares) s /= double(choices.action.size());
  return shares;
}

TEST(SampledPolicyTest, FrequenciesFollowSoftmaxAndExploration) {
  const std::size_t n = 40000;
  for (const double epsilon : {0.0, 0.3, 1.0}) {
    const std::vector<ExploreKey> keys = Keys(n, epsilon, 1);
    const std::vector<double> shares = Shares(Sample(kRow, keys));
    for (std::size_t a = 0; a < 3; ++a) {
      const double wanted = epsilon / 3 + (1 - epsilon) * kProbability[a];
      // Five standard deviations.
      EXPECT_NEAR(shares[a], wanted, 5 * std::sqrt(wanted * (1 - wanted) / double(n))) << epsilon;
      EXPECT_NEAR(LogProbability(keys[0], kRow, std::int32_t(a)), std::log(wanted), 1e-6);
    }
  }
}

TEST(SampledPolicyTest, WithoutNoiseTakesFirstLargestLogit) {
  EXPECT_EQ(Shares(Sample(kRow, Keys(100, 0, 0))), (std::vector<double>{0, 0, 1}));
  EXPECT_EQ(Shares(Sample({1, 2, 2, 5}, Keys(100, 0, 0))), (std::vector<double>{0, 1, 0}));
}

TEST(SampledPolicyTest, ValueIsBothQ) {
  const Choices choices = Sample(kRow, Keys(10, 0.5, 1));
  EXPECT_EQ(choices.q_taken, std::vector<float>(10, 9));
  EXPECT_EQ(choices.q_max, std::vector<float>(10, 9));
}

TEST(SampledPolicyTest, LargeLogitsDoNotOverflow) {
  const std::vector<float> row{-3e38F, 3e38F, 0, 1};
  const std::vector<ExploreKey> keys = Keys(100, 0, 1);
  EXPECT_EQ(Shares(Sample(row, keys)), (std::vector<double>{0, 1, 0}));
  EXPECT_EQ(LogProbability(keys[0], row, 1), 0);
}

TEST(SampledPolicyTest, ActionDependsOnlyOnKeyAndSeed) {
  const std::vector<ExploreKey> keys = Keys(200, 0.1, 1);
  const std::vector<ExploreKey> backwards(keys.rbegin(), keys.rend());
  const Choices first = Sample(kRow, keys);
  const Choices second = Sample(kRow, backwards);
  EXPECT_EQ(first.action, std::vector<std::int32_t>(second.action.rbegin(), second.action.rend()));
  EXPECT_NE(first.action, Sample(kRow, keys, 6).action);
}

}  // namespace
}  // namespace troop
