#include "core/base/philox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace troop {
namespace {

using testing::ElementsAre;

RngKey Key(std::uint64_t seed) { return {.run_seed = seed, .purpose = Purpose::kTest}; }

// Random123's kat_vectors, philox4x32 with 10 rounds.
TEST(RngTest, PhiloxMatchesKnownAnswers) {
  EXPECT_THAT(internal::Philox4x32({0, 0, 0, 0}, {0, 0}),
              ElementsAre(0x6627E8D5u, 0xE169C58Du, 0xBC57AC4Cu, 0x9B00DBD8u));
  EXPECT_THAT(internal::Philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
              ElementsAre(0x408F276Du, 0x41C83B0Eu, 0xA20BC7C6u, 0x6D5451FDu));
  EXPECT_THAT(internal::Philox4x32({0x243F6A88u, 0x85A308D3u, 0x13198A2Eu, 0x03707344u},
                                   {0xA4093822u, 0x299F31D0u}),
              ElementsAre(0xD16CFE09u, 0x94FDCCEBu, 0x5001E420u, 0x24126EA1u));
}

TEST(RngTest, SeedDependsOnEveryKeyField) {
  EXPECT_EQ(DeriveSeed({1, Purpose::kTest, 2, 3}), DeriveSeed({1, Purpose::kTest, 2, 3}));
  std::set<std::uint64_t> seeds;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    for (Purpose purpose : {Purpose::kEnvironment, Purpose::kExploration, Purpose::kTest}) {
      for (std::uint64_t index = 0; index < 20; ++index) {
        for (std::uint64_t episode = 0; episode < 20; ++episode) {
          seeds.insert(DeriveSeed({seed, purpose, index, episode}));
        }
      }
    }
  }
  EXPECT_EQ(seeds.size(), 4u * 3 * 20 * 20);
}

TEST(RngTest, SeekReachesEveryPosition) {
  Rng rng(Key(1));
  std::vector<std::uint32_t> numbers;
  for (std::uint64_t i = 0; i < 23; ++i) {
    EXPECT_EQ(rng.position(), i);
    numbers.push_back(rng.NextU32());
  }
  for (std::uint64_t i = 0; i < numbers.size(); ++i) {
    Rng other(Key(1));
    other.Seek(i);
    EXPECT_EQ(other.position(), i);
    EXPECT_EQ(other.NextU32(), numbers[i]) << i;
  }
  rng.Seek(std::uint64_t{1} << 40);
  EXPECT_EQ(rng.position(), std::uint64_t{1} << 40);
}

// Each bound is six standard deviations of the mean wide: it fails by chance once in 5e8 seeds, and
// the seed is fixed.
TEST(RngTest, UniformAndNormalHaveExpectedMoments) {
  constexpr int kCount = 100000;
  Rng rng(Key(2));
  double mean = 0, square = 0, normal = 0, normal_square = 0;
  for (int i = 0; i < kCount; ++i) {
    const double u = rng.Uniform();
    ASSERT_TRUE(u >= 0 && u < 1);
    const float f = rng.UniformF32();
    ASSERT_TRUE(f >= 0 && f < 1);
    mean += u / kCount;
    square += u * u / kCount;
    const double n = rng.Normal();
    normal += n / kCount;
    normal_square += n * n / kCount;
  }
  const double root = std::sqrt(double(kCount));
  EXPECT_NEAR(mean, 0.5, 6 * std::sqrt(1.0 / 12) / root);
  EXPECT_NEAR(square, 1.0 / 3, 6 * std::sqrt(4.0 / 45) / root);
  EXPECT_NEAR(normal, 0, 6 / root);
  EXPECT_NEAR(normal_square, 1, 6 * std::sqrt(2.0) / root);
}

TEST(RngTest, BelowIsUniformAndInRange) {
  constexpr int kCount = 60000;
  Rng rng(Key(3));
  std::vector<int> counts(6);
  for (int i = 0; i < kCount; ++i) ++counts.at(rng.Below(6));
  const double deviation = std::sqrt(kCount * (1.0 / 6) * (5.0 / 6));
  for (const int count : counts) EXPECT_NEAR(count, kCount / 6.0, 6 * deviation);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(rng.Below(1), 0u);
  // With a bias two thirds of these would fall in the lower half of three quarters of the range.
  constexpr std::uint32_t kBig = 3u << 30;
  int low = 0;
  for (int i = 0; i < kCount; ++i) low += rng.Below(kBig) < kBig / 2;
  EXPECT_NEAR(low, kCount / 2.0, 6 * std::sqrt(kCount / 4.0));
}

TEST(RngTest, UniformStaysInRange) {
  Rng rng(Key(4));
  for (int i = 0; i < 1000; ++i) {
    const double x = rng.Uniform(-2.5, 3);
    EXPECT_TRUE(x >= -2.5 && x < 3) << x;
  }
}

TEST(RngDeathTest, AbortsOnEmptyRange) {
  Rng rng(Key(5));
  EXPECT_DEATH(rng.Below(0), "empty range");
}

}  // namespace
}  // namespace troop
