#include "nn/models/squashed_gaussian.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/base/philox.h"

namespace troop {
namespace {

constexpr float kLow[] = {-2, 0}, kHigh[] = {2, 0.5f};

// Log-probability and normalized action of one dimension with bounds ±1.
std::pair<double, double> SampleOne(float mean, float log_std, double noise) {
  const float low[] = {-1}, high[] = {1}, head[] = {mean, log_std};
  const double e[] = {noise};
  float action[1];
  double log_probability[1];
  SquashedGaussian(low, high).Sample(head, e, action, log_probability);
  return {log_probability[0], action[0]};
}

// The density of normalized actions integrates to 1, whatever mean and deviation are.
TEST(SquashedGaussianTest, DensityIntegratesToOne) {
  for (const float mean : {-1.5f, 0.0f, 0.7f}) {
    for (const float log_std : {-3.0f, -0.5f, 0.3f}) {
      double sum = 0, last = 0, last_u = -1;
      for (double e = -9; e <= 9; e += 1e-3) {
        const double density = std::exp(SampleOne(mean, log_std, e).first);
        const double u = std::tanh(double(mean) + std::exp(double(log_std)) * e);
        if (e > -9) sum += (density + last) / 2 * (u - last_u);
        last = density, last_u = u;
      }
      EXPECT_NEAR(sum, 1, 1e-4) << mean << " " << log_std;
    }
  }
}

// log(1 - tanh² x) is about log 4 - 2 |x| where tanh x is 1 in f64.
TEST(SquashedGaussianTest, LogProbabilityIsExactWhereTanhSaturates) {
  for (const float x : {25.0f, -60.0f, 1e4f}) {
    const double normal = -0.5 * std::log(2 * M_PI);
    EXPECT_NEAR(SampleOne(x, 0, 0).first, normal - (std::log(4) - 2 * std::abs(double(x))), 1e-9);
    EXPECT_EQ(SampleOne(x, 0, 0).second, x > 0 ? 1 : -1);
  }
}

TEST(SquashedGaussianTest, DeviationHasLimits) {
  EXPECT_EQ(SampleOne(0.1f, 2, 0.5), SampleOne(0.1f, 7, 0.5));
  EXPECT_EQ(SampleOne(0.1f, -20, 0.5), SampleOne(0.1f, -90, 0.5));
  EXPECT_NE(SampleOne(0.1f, 2, 0.5), SampleOne(0.1f, 1.9f, 0.5));
}

TEST(SquashedGaussianTest, ScalesToBounds) {
  const SquashedGaussian policy(kLow, kHigh);
  const float head[] = {0.3f, -0.8f, 0, -1, 40, -40, 0, 0};  // two rows: means, then deviations
  float mode[4], action[4];
  policy.Mode(head, mode);
  EXPECT_FLOAT_EQ(mode[0], float(2 * std::tanh(0.3f)));
  EXPECT_FLOAT_EQ(mode[1], float(0.25 + 0.25 * std::tanh(-0.8f)));
  EXPECT_EQ(mode[2], 2);
  EXPECT_EQ(mode[3], 0);
  const double noise[] = {0.5, 2, 0, 0};
  policy.Sample(head, noise, action, {});
  EXPECT_FLOAT_EQ(action[0], float(2 * std::tanh(double(0.3f) + 0.5)));
  EXPECT_FLOAT_EQ(action[1], float(0.25 + 0.25 * std::tanh(double(-0.8f) + 2 * std::exp(-1.0))));
  EXPECT_EQ(action[2], 2);
  const float nan[] = {std::numeric_limits<float>::quiet_NaN(), 0, 0, 0};
  policy.Sample(nan, noise, std::span(action).first(2), {});
  EXPECT_TRUE(std::isnan(action[0]));
}

TEST(SquashedGaussianTest, GradientsMatchFiniteDifferences) {
  const SquashedGaussian policy(kLow, kHigh);
  Rng rng({3, Purpose::kTest});
  constexpr std::size_t kRows = 5;
  std::vector<float> head(kRows * 4), action(kRows * 2), daction(kRows * 2), dhead(head.size());
  std::vector<double> noise(kRows * 2), log_probability(kRows), dlog(kRows);
  for (float& x : head) x = float(0.5 * rng.Normal() - 0.5);  // smooth at the step below
  for (double& x : noise) x = rng.Normal();
  for (float& x : daction) x = float(rng.Normal());
  for (double& x : dlog) x = rng.Normal();
  head[2] = 3;  // beyond the limit: no gradient
  const auto loss = [&] {
    policy.Sample(head, noise, action, log_probability);
    double sum = 0;
    for (std::size_t i = 0; i < action.size(); ++i) sum += double(action[i]) * double(daction[i]);
    for (std::size_t i = 0; i < kRows; ++i) sum += log_probability[i] * dlog[i];
    return sum;
  };
  policy.Backward(head, noise, {daction, dlog}, dhead);
  for (std::size_t i = 0; i < head.size(); ++i) {
    const float origin = head[i];
    head[i] = origin + 0.0078125f;
    const double up = loss();
    head[i] = origin - 0.0078125f;
    const double down = loss();
    head[i] = origin;
    EXPECT_NEAR(dhead[i], (up - down) / 0.015625, 2e-3) << i;
  }
  EXPECT_EQ(dhead[2], 0);
}

}  // namespace
}  // namespace troop
