#include "nn/models/value_head.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/base/philox.h"
#include "tests/learners/value_reference.h"

namespace troop {
namespace {

ModelSetup SetupOf(CriticKind critic) {
  ModelSetup setup;
  setup.critic = critic;
  setup.atoms = 7;
  setup.v_min = -3;
  setup.v_max = 5;
  return setup;
}

ValueReference ReferenceOf(const ModelSetup& setup) {
  if (setup.critic == CriticKind::kScalar) return {};
  const auto kind = setup.critic == CriticKind::kCategorical ? ValueReference::kCategorical
                                                             : ValueReference::kQuantile;
  return {
      .kind = kind, .numbers = std::size_t(setup.atoms), .low = setup.v_min, .high = setup.v_max};
}

TEST(ValueFormTest, MeansAndDerivativesMatchReference) {
  Rng rng({.run_seed = 4});
  for (CriticKind critic : {CriticKind::kScalar, CriticKind::kCategorical, CriticKind::kQuantile}) {
    const ModelSetup setup = SetupOf(critic);
    const ValueHead form = GetValueHead(setup);
    const ValueReference reference = ReferenceOf(setup);
    ASSERT_EQ(form.numbers, std::int64_t(reference.numbers)) << EnumName(critic);
    const std::size_t values = 11, k = reference.numbers;
    std::vector<float> out(values * k), slope(values * k), q(values);
    for (float& x : out) x = float(3 * rng.Normal());
    ExpectedValues(form, out, q);
    ExpectedValueGradient(form, out, -0.25, slope);
    const std::vector<double> all(out.begin(), out.end());
    for (std::size_t i = 0; i < values; ++i) {
      EXPECT_NEAR(q[i], reference.Mean(reference.Of(all, i)), 1e-5) << EnumName(critic);
      const std::vector<double> want = reference.Slope(reference.Of(all, i));
      for (std::size_t j = 0; j < k; ++j) {
        EXPECT_NEAR(slope[i * k + j], -0.25 * want[j], 1e-6) << EnumName(critic);
      }
    }
  }
}

TEST(ValueFormTest, RejectsInvalidForm) {
  for (CriticKind critic : {CriticKind::kScalar, CriticKind::kCategorical, CriticKind::kQuantile}) {
    EXPECT_TRUE(CheckValueHead(SetupOf(critic)).ok()) << EnumName(critic);
  }
  ModelSetup setup = SetupOf(CriticKind::kCategorical);
  setup.v_min = setup.v_max;
  EXPECT_EQ(CheckValueHead(setup).code(), Code::kInvalidArgument);
  setup = SetupOf(CriticKind::kCategorical);
  setup.atoms = 1;
  EXPECT_EQ(CheckValueHead(setup).code(), Code::kInvalidArgument);
  setup = SetupOf(CriticKind::kQuantile);
  setup.atoms = 0;
  EXPECT_EQ(CheckValueHead(setup).code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace troop
