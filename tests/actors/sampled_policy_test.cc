#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "actors/policy.h"
#include "nn/layers/layers.h"

namespace troop {
namespace {

// Logits of three actions and a value. Probabilities: 1/7, 2/7, 4/7.
const std::vector<float> kRow{0, std::log(2.0F), std::log(4.0F), 9};
constexpr double kProbability[] = {1.0 / 7, 2.0 / 7, 4.0 / 7};

// The row, n times.
Tensor Repeated(const std::vector<float>& row, std::size_t n) {
  Tensor out(DType::kF32, {std::int64_t(n), std::int64_t(row.size())});
  for (std::size_t i = 0; i < n; ++i)
    std::ranges::copy(row, out.as<float>().subspan(i * row.size()).begin());
  return out;
}

// The choices for that row with each key.
std::vector<std::int32_t> Sample(const std::vector<float>& row, std::span<const ExploreKey> keys,
                                 std::uint64_t seed = 5) {
  std::vector<std::int32_t> actions(keys.size());
  SampleActions(seed, keys, Repeated(row, keys.size()), actions);
  return actions;
}

std::vector<ExploreKey> Keys(std::size_t n, double epsilon, double sigma) {
  std::vector<ExploreKey> keys(n);
  for (std::size_t i = 0; i < n; ++i)
    keys[i] = {
        .env = i % 7, .episode = i / 70, .step = i, .epsilon = epsilon, .noise_sigma = sigma};
  return keys;
}

std::vector<double> Shares(const std::vector<std::int32_t>& actions) {
  std::vector<double> shares(3);
  for (const std::int32_t a : actions) shares[std::size_t(a)] += 1;
  for (double& s : shares) s /= double(actions.size());
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

TEST(SampledPolicyTest, LargeLogitsDoNotOverflow) {
  const std::vector<float> row{-3e38F, 3e38F, 0, 1};
  const std::vector<ExploreKey> keys = Keys(100, 0, 1);
  EXPECT_EQ(Shares(Sample(row, keys)), (std::vector<double>{0, 1, 0}));
  EXPECT_EQ(LogProbability(keys[0], row, 1), 0);
}

TEST(SampledPolicyTest, ActionDependsOnlyOnKeyAndSeed) {
  const std::vector<ExploreKey> keys = Keys(200, 0.1, 1);
  const std::vector<ExploreKey> backwards(keys.rbegin(), keys.rend());
  const std::vector<std::int32_t> first = Sample(kRow, keys), second = Sample(kRow, backwards);
  EXPECT_EQ(first, std::vector<std::int32_t>(second.rbegin(), second.rend()));
  EXPECT_NE(first, Sample(kRow, keys, 6));
}

// Two dimensions: means 0.5 and -1.2, deviations 0.8 and 0.4 halves of the range, and a value.
const ActionSpec kBox{.kind = ActionSpec::Kind::kContinuous, .low = {-2, 1}, .high = {2, 3}};
const std::vector<float> kGaussians{0.5F, -1.2F, std::log(0.8F), std::log(0.4F), 9};

std::vector<float> SampleBox(std::span<const ExploreKey> keys) {
  std::vector<float> actions(2 * keys.size());
  SampleActions(5, keys, Repeated(kGaussians, keys.size()), kBox, actions);
  return actions;
}

double NormalCdf(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

// Shares of the samples below some actions, bounds included, against the distribution function.
TEST(SampledPolicyTest, ContinuousSamplesFollowClippedGaussiansAndExploration) {
  const std::size_t n = 40000;
  for (const double epsilon : {0.0, 0.3, 1.0}) {
    const std::vector<float> actions = SampleBox(Keys(n, epsilon, 1));
    for (std::size_t k = 0; k < 2; ++k) {
      const double mean = double(kGaussians[k]), std = std::exp(double(kGaussians[2 + k]));
      for (const double u : {-1.0, -0.5, 0.0, 0.4, 0.999}) {
        const double middle = (kBox.low[k] + kBox.high[k]) / 2;
        const double limit = middle + u * (kBox.high[k] - kBox.low[k]) / 2;
        double share = 0;
        for (std::size_t i = 0; i < n; ++i)
          share += double(actions[2 * i + k]) <= limit ? 1 / double(n) : 0;
        const double wanted = epsilon * (u + 1) / 2 + (1 - epsilon) * NormalCdf((u - mean) / std);
        EXPECT_NEAR(share, wanted, 5 * std::sqrt(wanted * (1 - wanted) / double(n)) + 1e-9)
            << epsilon << ", " << k << ", " << u;
      }
    }
  }
}

// Densities in units of half the range inside, probabilities at the bounds.
TEST(SampledPolicyTest, ContinuousLogProbabilityIsThatOfTheSamples) {
  const auto density = [](double u, double mean, double std) {
    return std::exp(-0.5 * std::pow((u - mean) / std, 2)) / std / std::sqrt(2 * M_PI);
  };
  const std::vector<float> inside{1, 1.75F}, bound{2, 1};
  const double at_inside = density(0.5, 0.5, 0.8) * density(-0.25, -1.2, 0.4);
  const double at_bound = (1 - NormalCdf((1 - 0.5) / 0.8)) * NormalCdf((-1 + 1.2) / 0.4);
  for (const double epsilon : {0.0, 0.3, 1.0}) {
    const ExploreKey key{.epsilon = epsilon, .noise_sigma = 1};
    const auto wanted = [&](double policy) {
      return std::log(epsilon / 4 + (1 - epsilon) * policy);
    };
    EXPECT_NEAR(LogProbability(key, kGaussians, kBox, inside), wanted(at_inside), 1e-6);
    EXPECT_NEAR(LogProbability(key, kGaussians, kBox, bound), wanted(at_bound), 1e-6);
  }
}

TEST(SampledPolicyTest, ContinuousActionsWithoutNoiseAreClippedMeans) {
  const std::vector<float> actions = SampleBox(Keys(3, 0, 0));
  EXPECT_EQ(actions, (std::vector<float>{1, 1, 1, 1, 1, 1}));
}

// Environments never receive NaN.
TEST(SampledPolicyTest, ContinuousActionOfNanIsABound) {
  std::vector<float> action(2);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  SampleActions(5, Keys(1, 0, 1), Repeated({nan, 0, 0, nan, 0}, 1), kBox, action);
  EXPECT_EQ(action, kBox.low);
}

// The second of four actions is forbidden: logits 0, log 2 and log 4 remain.
TEST(SampledPolicyTest, MaskedActionsAreNeverChosen) {
  const std::vector<float> row{0, kMaskedOutput, std::log(2.0F), std::log(4.0F), 9};
  const double allowed[] = {1.0 / 7, 0, 2.0 / 7, 4.0 / 7};
  const std::size_t n = 40000;
  for (const double epsilon : {0.0, 0.3, 1.0}) {
    const std::vector<ExploreKey> keys = Keys(n, epsilon, 1);
    std::vector<double> shares(4);
    for (const std::int32_t a : Sample(row, keys)) shares[std::size_t(a)] += 1 / double(n);
    EXPECT_EQ(shares[1], 0);
    for (const std::size_t a : {0, 2, 3}) {
      const double wanted = epsilon / 3 + (1 - epsilon) * allowed[a];
      EXPECT_NEAR(shares[a], wanted, 5 * std::sqrt(wanted * (1 - wanted) / double(n))) << epsilon;
      EXPECT_NEAR(LogProbability(keys[0], row, std::int32_t(a)), std::log(wanted), 1e-6);
    }
  }
}

// Probabilities that add up to less than the random number leave the last possible action.
TEST(SampledPolicyTest, LastActionIsNotChosenIfMasked) {
  const std::vector<float> row{0, 0, kMaskedOutput, 1};
  for (const std::int32_t a : Sample(row, Keys(100000, 0, 1))) ASSERT_LT(a, 2);
}

// Two components, of two and of three values.
TEST(SampledPolicyTest, ComponentsFollowTheirSoftmaxAndExploration) {
  const ActionSpec spec{
      .kind = ActionSpec::Kind::kContinuous, .low = {0, -1}, .high = {1, 1}, .integers = true};
  const std::vector<float> row{0, std::log(3.0F), 0, std::log(2.0F), std::log(4.0F), 9};
  const double probability[2][3] = {{0.25, 0.75, 0}, {1.0 / 7, 2.0 / 7, 4.0 / 7}};
  const std::size_t n = 40000;
  for (const double epsilon : {0.0, 0.3, 1.0}) {
    const std::vector<ExploreKey> keys = Keys(n, epsilon, 1);
    std::vector<float> actions(2 * n);
    SampleActions(5, keys, Repeated(row, n), spec, actions);
    double shares[2][3] = {};
    for (std::size_t i = 0; i < n; ++i)
      shares[int(actions[2 * i])][int(actions[2 * i + 1]) + 1] += 1 / double(n);
    for (const int a : {0, 1}) {
      for (const int b : {0, 1, 2}) {
        const double wanted = epsilon / 6 + (1 - epsilon) * probability[0][a] * probability[1][b];
        EXPECT_NEAR(shares[a][b], wanted, 5 * std::sqrt(wanted * (1 - wanted) / double(n)));
        const std::vector<float> action{float(a), float(b) - 1};
        EXPECT_NEAR(LogProbability(keys[0], row, spec, action), std::log(wanted), 1e-6);
      }
    }
  }
  // The mode, and no action outside of the bounds for outputs that are not finite.
  std::vector<float> mode(2), broken(2);
  SampleActions(5, Keys(1, 0, 0), Repeated(row, 1), spec, mode);
  EXPECT_EQ(mode, (std::vector<float>{1, 1}));
  const std::vector<float> nan(6, std::nanf(""));
  SampleActions(5, Keys(1, 0, 1), Repeated(nan, 1), spec, broken);
  EXPECT_TRUE(CheckComponents(spec, broken).ok());
}

}  // namespace
}  // namespace troop
