#include "kernels/loss/policy_distribution.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/base/philox.h"

namespace troop {
namespace {

// mpmath with 40 digits: log ncdf(z) and npdf(z) / ncdf(z).
TEST(LogNormalCdfTest, MatchesReferenceInBothBranches) {
  const struct {
    double z, log, slope;
  } cases[] = {
      {3, -0.0013508099647481938, 0.00443783904212566379},
      {0, -0.693147180559945309, 0.797884560802865356},
      {-1, -1.84102164500926351, 1.52513527616098121},
      {-10, -53.2312851505124706, 10.098093233962512},
      {-29.9, -451.322912458528677, 29.9333704112961677},
      {-30.1, -457.329564416382215, 30.1331496545784511},
      {-40, -804.608442013753788, 40.0249688472072637},
      {-1000, -500007.826694812184, 1000.00099999800001},
  };
  for (const auto& c : cases) {
    const LogNormalTail got = LogNormalCdf(c.z);
    EXPECT_NEAR(got.log, c.log, 1e-13 * (1 + std::abs(c.log))) << c.z;
    EXPECT_NEAR(got.slope, c.slope, 1e-12 * (1 + c.slope)) << c.z;
  }
  EXPECT_TRUE(std::isnan(LogNormalCdf(std::numeric_limits<double>::quiet_NaN()).log));
}

// The density inside and the probabilities of the bounds add up to 1.
TEST(ClippedGaussianTest, HasTotalProbabilityOne) {
  Rng rng({1, Purpose::kTest});
  for (int repeat = 0; repeat < 50; ++repeat) {
    const double mean = 2 * rng.Normal(), log_std = rng.Uniform(-2, 1);
    double sum = std::exp(ClippedGaussianAt(-1, mean, log_std).log_probability) +
                 std::exp(ClippedGaussianAt(1, mean, log_std).log_probability);
    const int cells = 20000;
    for (int i = 0; i < cells; ++i) {
      const double u = -1 + (2 * i + 1.0) / cells;
      sum += std::exp(ClippedGaussianAt(u, mean, log_std).log_probability) * 2 / cells;
    }
    EXPECT_NEAR(sum, 1, 1e-6) << mean << ", " << log_std;
  }
}

TEST(ClippedGaussianTest, DerivativesMatchDifferences) {
  Rng rng({2, Purpose::kTest});
  for (int repeat = 0; repeat < 300; ++repeat) {
    const double mean = rng.Normal(), log_std = rng.Uniform(-1.5, 1), step = 1e-6;
    const double u = repeat % 3 == 0 ? -1 : repeat % 3 == 1 ? 1 : rng.Uniform(-0.99, 0.99);
    const auto at = [&](double dmean, double dlog_std) {
      return ClippedGaussianAt(u, mean + dmean, log_std + dlog_std).log_probability;
    };
    const ClippedGaussian got = ClippedGaussianAt(u, mean, log_std);
    const double dmean = (at(step, 0) - at(-step, 0)) / (2 * step);
    const double dlog_std = (at(0, step) - at(0, -step)) / (2 * step);
    EXPECT_NEAR(got.dmean, dmean, 1e-6 * (1 + std::abs(dmean)));
    EXPECT_NEAR(got.dlog_std, dlog_std, 1e-6 * (1 + std::abs(dlog_std)));
  }
}

// log π of a distribution is differentiable where its action is a bound, and in extreme tails.
TEST(ClippedGaussianTest, FarBoundsHaveFiniteGradients) {
  const ClippedGaussian got = ClippedGaussianAt(1, -3, -3);
  EXPECT_NEAR(got.log_probability, -0.5 * std::pow(4 * std::exp(3), 2), 10);
  EXPECT_GT(got.dmean, 1000);
  EXPECT_TRUE(std::isfinite(got.dlog_std));
}

// The gradient of slope · log π(a) - entropy_cost · entropy, and the entropy itself.
void ExpectGradientOfDifferences(PolicyDistribution* policy, std::vector<float> out) {
  const double scale = 0.7, slope = -1.3, cost = 0.2;
  const auto count = std::size_t(policy->columns());
  ASSERT_EQ(out.size(), count);
  std::vector<float> dout(count, 99), unused(count);
  const auto entropy_at = [&] { return policy->Backward(out.data(), 1, {}, unused.data()); };
  policy->Backward(out.data(), 1, {scale, slope, cost}, dout.data());
  for (std::size_t k = 0; k < count; ++k) {
    const float kept = out[k];
    double sides[2];
    for (const int side : {0, 1}) {
      out[k] = kept + (side == 0 ? 1e-3F : -1e-3F);
      sides[side] = slope * policy->LogProbability(out.data(), 1) - cost * entropy_at();
    }
    const double step = double(kept + 1e-3F) - double(kept - 1e-3F);
    out[k] = kept;
    EXPECT_NEAR(dout[k], scale * (sides[0] - sides[1]) / step, 1e-4) << k;
  }
}

TEST(PolicyDistributionTest, GradientsMatchDifferences) {
  const std::vector<std::int32_t> chosen{9, 2};  // index 1 counts
  CategoricalDistribution categorical(4, chosen.data());
  ExpectGradientOfDifferences(&categorical, {0.3F, -1, 0.7F, 2});
  const std::vector<float> low{-2, 0, -1}, high{2, 0.5F, 1};
  const std::vector<float> action{9, 9, 9, 1.5F, 0, 1};  // inside, and both bounds
  GaussianDistribution gaussian(low, high, action.data());
  ExpectGradientOfDifferences(&gaussian, {0.3F, -0.4F, 0.9F, -0.5F, 0.1F, -0.7F});
  const std::vector<float> lowest{0, -1}, highest{1, 1}, integers{9, 9, 1, -1};
  MultiCategoricalDistribution several(lowest, highest, integers.data());
  ExpectGradientOfDifferences(&several, {0.3F, -1, 0.7F, 2, -0.5F});
}

// The probability of an action is the product of softmax probabilities, and all add up to 1.
TEST(MultiCategoricalDistributionTest, EqualsProductOfSoftmax) {
  const std::vector<float> low{0, -1, 4}, high{1, 1, 4};  // 2, 3 and 1 values
  const std::vector<float> out{0.3F, -1, 0.7F, 2, -0.5F, 8};
  const auto softmax = [&](std::size_t first, std::size_t count, std::size_t chosen) {
    double sum = 0;
    for (std::size_t k = first; k < first + count; ++k) sum += std::exp(double(out[k]));
    return std::exp(double(out[first + chosen])) / sum;
  };
  double total = 0, entropy = 0;
  std::vector<float> dout(out.size());
  double reported = 0;
  for (std::size_t a = 0; a < 2; ++a) {
    for (std::size_t b = 0; b < 3; ++b) {
      const std::vector<float> action{float(a), float(b) - 1, 4};
      MultiCategoricalDistribution policy(low, high, action.data());
      EXPECT_EQ(policy.columns(), 6);
      const double want = softmax(0, 2, a) * softmax(2, 3, b);
      EXPECT_NEAR(policy.LogProbability(out.data(), 0), std::log(want), 1e-12);
      total += std::exp(policy.LogProbability(out.data(), 0));
      entropy -= want * std::log(want);
      reported = policy.Backward(out.data(), 0, {}, dout.data());
    }
  }
  EXPECT_NEAR(total, 1, 1e-12);
  EXPECT_NEAR(reported, entropy, 1e-12);
}

TEST(PolicyDistributionTest, EntropiesAreThoseOfTheDefinitions) {
  const std::int32_t chosen = 0;
  const std::vector<float> equal(5), action{0};
  std::vector<float> unused(5);
  EXPECT_NEAR(CategoricalDistribution(5, &chosen).Backward(equal.data(), 0, {}, unused.data()),
              std::log(5.0), 1e-12);
  const std::vector<float> low{-1}, high{1}, out{0.2F, 0.5F};
  EXPECT_NEAR(
      GaussianDistribution(low, high, action.data()).Backward(out.data(), 0, {}, unused.data()),
      0.5 * std::log(2 * M_PI * std::exp(1.0)) + 0.5, 1e-12);
}

// Stored bounds are recognized although their middle and half may not be exact.
TEST(PolicyDistributionTest, BoundsAreExact) {
  for (const float high : {0.1F, 1.0F, 3e38F}) {
    const float low = -high / 3;
    EXPECT_EQ(GaussianDistribution::Normalized(low, low, high), -1);
    EXPECT_EQ(GaussianDistribution::Normalized(high, low, high), 1);
    EXPECT_LT(GaussianDistribution::Normalized(std::nextafter(high, low), low, high), 1);
  }
}

}  // namespace
}  // namespace troop
