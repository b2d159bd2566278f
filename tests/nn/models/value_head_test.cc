#include "nn/models/value_head.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/base/philox.h"
#include "tests/learners/config_values.h"

namespace troop {
namespace {

Config ConfigOf(const char* critic) {
  Config config;
  config.learner.critic = critic;
  config.learner.atoms = 7;
  config.learner.v_min = -3;
  config.learner.v_max = 5;
  return config;
}

TEST(ValueFormTest, MeansAndDerivativesMatchReference) {
  Rng rng({.run_seed = 4});
  for (const char* critic : {"scalar", "categorical", "quantile"}) {
    const Config config = ConfigOf(critic);
    const ValueHead form = GetValueHead(config);
    const ValueReference reference = ValuesOf(config);
    ASSERT_EQ(form.numbers, std::int64_t(reference.numbers)) << critic;
    const std::size_t values = 11, k = reference.numbers;
    std::vector<float> out(values * k), slope(values * k), q(values);
    for (float& x : out) x = float(3 * rng.Normal());
    ExpectedValues(form, out, q);
    ExpectedValueGradient(form, out, -0.25, slope);
    const std::vector<double> all(out.begin(), out.end());
    for (std::size_t i = 0; i < values; ++i) {
      EXPECT_NEAR(q[i], reference.Mean(reference.Of(all, i)), 1e-5) << critic;
      const std::vector<double> want = reference.Slope(reference.Of(all, i));
      for (std::size_t j = 0; j < k; ++j) {
        EXPECT_NEAR(slope[i * k + j], -0.25 * want[j], 1e-6) << critic;
      }
    }
  }
}

TEST(ValueFormTest, RejectsInvalidForm) {
  for (const char* critic : {"scalar", "categorical", "quantile"}) {
    EXPECT_TRUE(CheckValueHead(ConfigOf(critic)).ok()) << critic;
  }
  EXPECT_EQ(CheckValueHead(ConfigOf("normal")).message(),
            "learner.critic is \"normal\"; valid are \"scalar\", \"categorical\", \"quantile\"");
  Config config = ConfigOf("categorical");
  config.learner.v_min = config.learner.v_max;
  EXPECT_EQ(CheckValueHead(config).code(), Code::kInvalidArgument);
  config = ConfigOf("categorical");
  config.learner.atoms = 1;
  EXPECT_EQ(CheckValueHead(config).code(), Code::kInvalidArgument);
  config = ConfigOf("quantile");
  config.learner.atoms = 0;
  EXPECT_EQ(CheckValueHead(config).code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace troop
