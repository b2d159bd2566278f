#include "kernels/transformer/dropout.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/base/philox.h"

namespace troop {
namespace {

constexpr float kNever = -7;

std::vector<float> Factors(const DropoutSite& site, float rate, std::int64_t first,
                           std::int64_t n) {
  std::vector<float> factor(std::size_t(n), kNever);
  DropoutFactors(site, rate, first, n, factor.data());
  return factor;
}

DropoutSite SiteOf(std::uint64_t sample, std::uint32_t site) {
  return {MakeDropoutKey(3, sample, 12), site};
}

// Philox as core/base/philox.h has it, which is tested against published numbers.
TEST(DropoutTest, EveryLevelMatchesPhilox) {
  const DropoutSite site = SiteOf(5, 9);
  const std::uint32_t kept = DropoutKept(0.1f);
  for (const CpuLevel level : SupportedCpuLevels()) {
    for (const std::int64_t first : {0, 1, 100, 128, 4000}) {
      for (const std::int64_t n : {0, 1, 27, 128, 300}) {
        std::vector<float> factor(std::size_t(n) + 1, kNever);
        DropoutFor(level)(site, kept, first, n, factor.data());
        for (std::int64_t i = 0; i < n; ++i) {
          const std::int64_t e = first + i, part = e % 128 / 16;
          const auto words = internal::Philox4x32(
              {std::uint32_t(e / 128 * 16 + e % 16), 9, site.key.stream[0], site.key.stream[1]},
              {site.key.key[0], site.key.key[1]});
          const std::uint32_t number = words[std::size_t(part / 2)] >> (part % 2 * 16) & 0xffff;
          const float expected = number < kept ? 65536.0f / float(kept) : 0.0f;
          ASSERT_EQ(factor[std::size_t(i)], expected) << CpuLevelName(level) << " " << e;
        }
        ASSERT_EQ(factor[std::size_t(n)], kNever);
      }
    }
  }
}

TEST(DropoutTest, FactorsDependOnElementNotOnCall) {
  const std::vector<float> whole = Factors(SiteOf(1, 2), 0.3f, 0, 1000);
  for (std::int64_t first = 0; first < 1000; first += 77) {
    const std::int64_t n = std::min<std::int64_t>(77, 1000 - first);
    const std::vector<float> part = Factors(SiteOf(1, 2), 0.3f, first, n);
    for (std::int64_t i = 0; i < n; ++i)
      ASSERT_EQ(part[std::size_t(i)], whole[std::size_t(first + i)]) << first + i;
  }
}

TEST(DropoutTest, FactorsDifferBySampleSiteAndStepAndRepeat) {
  const std::vector<float> base = Factors({MakeDropoutKey(3, 1, 2), 4}, 0.5f, 0, 256);
  EXPECT_EQ(Factors({MakeDropoutKey(3, 1, 2), 4}, 0.5f, 0, 256), base);
  EXPECT_NE(Factors({MakeDropoutKey(4, 1, 2), 4}, 0.5f, 0, 256), base);
  EXPECT_NE(Factors({MakeDropoutKey(3, 2, 2), 4}, 0.5f, 0, 256), base);
  EXPECT_NE(Factors({MakeDropoutKey(3, 1, 3), 4}, 0.5f, 0, 256), base);
  EXPECT_NE(Factors({MakeDropoutKey(3, 1, 2), 5}, 0.5f, 0, 256), base);
}

// Fixed seeds: the numbers are the same at every run. Of n draws the share dropped is within five
// standard deviations of the rate.
TEST(DropoutTest, DropsAtItsRateAndPreservesMean) {
  for (const float rate : {0.0f, 0.1f, 0.5f, 0.9f}) {
    const std::int64_t n = 200000;
    double sum = 0, dropped = 0;
    for (const float f : Factors(SiteOf(7, 0), rate, 0, n)) {
      sum += f;
      dropped += f == 0;
    }
    const double spread = std::sqrt(rate * (1 - rate) / double(n));
    EXPECT_NEAR(dropped / double(n), rate, 5 * spread + 1e-5);
    EXPECT_NEAR(sum / double(n), 1, (5 * spread + 1e-5) / (1 - rate));
  }
}

}  // namespace
}  // namespace troop
