#include "replay/selectors/priority_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/base/philox.h"
#include "kernels/simd/cpu_features.h"
#include "replay/selectors/sum_tree.h"

namespace troop {
namespace {

constexpr float kTiniest = std::numeric_limits<float>::denorm_min();

Rng TestRng(std::uint64_t index) { return Rng({.run_seed = 12, .index = index}); }

std::vector<float> Powers(const std::vector<float>& priority, double alpha,
                          CpuLevel level = BestCpuLevel()) {
  std::vector<float> value(priority.size());
  PowerPriorities(priority, alpha, value, PriorityKernelsFor(level));
  return value;
}

std::vector<float> Weights(const std::vector<double>& probability, double least, double beta,
                           CpuLevel level = BestCpuLevel()) {
  std::vector<float> weight(probability.size());
  ImportanceWeights(probability, least, beta, weight, PriorityKernelsFor(level));
  return weight;
}

std::vector<double> Masses(double total, std::size_t n, Rng* rng, CpuLevel level = BestCpuLevel()) {
  std::vector<double> mass(n);
  StratifiedMasses(total, rng, mass, PriorityKernelsFor(level));
  return mass;
}

// All magnitudes of f32, some of them denormal, some 0.
std::vector<float> AnyPriorities(std::size_t n, Rng* rng) {
  std::vector<float> priority(n);
  for (float& p : priority) p = std::bit_cast<float>(rng->Below(0x7F800000u));
  for (std::size_t i = 0; i < n; i += 7) priority[i] = 0;
  for (std::size_t i = 3; i < n; i += 7) priority[i] = 0.5f + rng->UniformF32();
  return priority;
}

// In units of the last place of the exact value's f32.
double UlpError(float value, double exact) {
  const auto rounded = float(exact);
  return std::abs(double(value) - exact) /
         (double(std::nextafter(rounded, INFINITY)) - double(rounded));
}

class PriorityMathPathTest : public testing::TestWithParam<CpuLevel> {};
INSTANTIATE_TEST_SUITE_P(EachPath, PriorityMathPathTest,
                         testing::ValuesIn(SupportedCpuLevels().begin(),
                                           SupportedCpuLevels().end()),
                         [](const auto& info) { return std::string(CpuLevelName(info.param)); });

TEST_P(PriorityMathPathTest, PowersAreWithinOneUlp) {
  Rng rng = TestRng(1);
  for (const double alpha : {0.0, 0.3, 0.5, 0.6, 0.7, 1.0, 1.5, 4.0, -0.4, -1.0}) {
    const std::vector<float> priority = AnyPriorities(20000, &rng);
    const std::vector<float> value = Powers(priority, alpha, GetParam());
    for (std::size_t i = 0; i < value.size(); ++i) {
      if (priority[i] == 0) continue;
      const double exact = std::clamp(std::pow(double(priority[i]), alpha), double(FLT_MIN),
                                      double(SumTree::kPriorityMax));
      ASSERT_LE(UlpError(value[i], exact), 1) << priority[i] << "^" << alpha;
    }
  }
}

TEST_P(PriorityMathPathTest, WeightsAreWithinOneUlp) {
  Rng rng = TestRng(2);
  for (const double beta : {0.0, 0.4, 0.5, 1.0, 2.0}) {
    std::vector<double> probability(20000);
    for (double& p : probability) p = std::pow(10.0, rng.Uniform(-12, 0));
    const double least = std::ranges::min(probability);
    const std::vector<float> weight = Weights(probability, least, beta, GetParam());
    for (std::size_t i = 0; i < weight.size(); ++i) {
      ASSERT_LE(UlpError(weight[i], std::pow(least / probability[i], beta)), 1)
          << probability[i] << ", beta " << beta;
      ASSERT_LE(weight[i], 1.0f);
    }
  }
}

TEST_P(PriorityMathPathTest, MatchesPlainPathBitwiseForEveryLength) {
  Rng rng = TestRng(3);
  for (std::size_t n = 0; n < 70; ++n) {
    const std::vector<float> priority = AnyPriorities(n, &rng);
    std::vector<double> probability(n);
    for (double& p : probability) p = rng.Uniform() + 1e-9;
    for (const double exponent : {0.6, 0.9}) {
      EXPECT_EQ(Powers(priority, exponent, GetParam()),
                Powers(priority, exponent, CpuLevel::kPlain));
      EXPECT_EQ(Powers(priority, -exponent, GetParam()),
                Powers(priority, -exponent, CpuLevel::kPlain));
      EXPECT_EQ(Weights(probability, 1e-9, exponent, GetParam()),
                Weights(probability, 1e-9, exponent, CpuLevel::kPlain));
    }
  }
}

TEST_P(PriorityMathPathTest, MassesMatchSequentialRandomNumbers) {
  for (const std::uint64_t position :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{3}, std::uint64_t{4},
        (std::uint64_t{1} << 34) - 4, std::uint64_t{12345678901}}) {
    for (const std::size_t n : {1u, 2u, 3u, 5u, 15u, 16u, 17u, 31u, 33u, 512u}) {
      Rng batch = TestRng(4), single = TestRng(4);
      batch.Seek(position);
      single.Seek(position);
      const std::vector<double> mass = Masses(3.7, n, &batch, GetParam());
      for (std::size_t i = 0; i < n; ++i) {
        ASSERT_EQ(mass[i], (double(i) + single.Uniform()) * (3.7 / double(n)))
            << "mass " << i << " of " << n << " from position " << position;
      }
      ASSERT_EQ(batch.position(), single.position());
      ASSERT_EQ(batch.NextU32(), single.NextU32());
    }
  }
}

TEST_P(PriorityMathPathTest, EveryMassLiesInItsStratum) {
  Rng rng = TestRng(5);
  const std::vector<double> mass = Masses(1e9, 1000, &rng, GetParam());
  for (std::size_t i = 0; i < mass.size(); ++i) {
    EXPECT_GE(mass[i], 1e6 * double(i));
    EXPECT_LT(mass[i], 1e6 * double(i + 1));
  }
}

TEST_P(PriorityMathPathTest, KeepsZeroAndClampsRestToSampleableRange) {
  const std::vector<float> priority = {0, -0.0f, kTiniest, FLT_MIN, 1, FLT_MAX};
  EXPECT_EQ(Powers(priority, 1, GetParam()),
            (std::vector<float>{0, 0, FLT_MIN, FLT_MIN, 1, SumTree::kPriorityMax}));
  EXPECT_EQ(Powers(priority, 0, GetParam()), (std::vector<float>{0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(Powers(priority, 16, GetParam()),
            (std::vector<float>{0, 0, FLT_MIN, FLT_MIN, 1, SumTree::kPriorityMax}));
}

TEST_P(PriorityMathPathTest, NegativeExponentTreatsZeroAsSmallestPriority) {
  const std::vector<float> value = Powers({0, kTiniest, 1e-3f, 1, 1e3f}, -0.4, GetParam());
  EXPECT_EQ(value[0], value[1]);
  EXPECT_TRUE(std::ranges::is_sorted(value, std::greater<>()));
  EXPECT_GT(value[4], 0);
  EXPECT_EQ(Powers({0}, -16, GetParam()), (std::vector<float>{SumTree::kPriorityMax}));
}

TEST(PriorityMathDeathTest, RejectsInvalidPriorities) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  EXPECT_DEATH(Powers({1, 2, std::nanf("")}, 0.6), "priority");
  EXPECT_DEATH(Powers({1, kInf}, 0.6), "priority");
  EXPECT_DEATH(Powers({-1, 1}, 0.6), "priority");
  EXPECT_DEATH(Powers({1}, std::nan("")), "alpha");
}

TEST(PriorityMathDeathTest, RejectsInvalidProbabilities) {
  EXPECT_DEATH(Weights({0.5, 0}, 0.5, 0.4), "probability");
  EXPECT_DEATH(Weights({0.5, std::nan("")}, 0.5, 0.4), "probability");
  EXPECT_DEATH(Weights({0.5}, 0, 0.4), "least probability");
  EXPECT_DEATH(Weights({0.5}, 0.5, -1), "beta");
}

}  // namespace
}  // namespace troop
