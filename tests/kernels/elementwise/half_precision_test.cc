#include "kernels/elementwise/half_precision.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "core/base/philox.h"

namespace troop {
namespace {

// The numbers of a format by its definition, in f64. Finite bits.
double ValueOf(HalfFormat format, std::uint16_t bits) {
  const int mantissa_bits = format == HalfFormat::kF16 ? 10 : 7;
  const int bias = format == HalfFormat::kF16 ? 15 : 127;
  const int exponent = (bits & 0x7fff) >> mantissa_bits;
  const double mantissa = bits & ((1 << mantissa_bits) - 1);
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                    : std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
  return bits & 0x8000 ? -magnitude : magnitude;
}
std::uint16_t LastFinite(HalfFormat format) { return format == HalfFormat::kF16 ? 0x7bff : 0x7f7f; }

// By halving the interval: no arithmetic on bits.
std::uint16_t NearestTo(HalfFormat format, double x) {
  const double size = std::abs(x);
  std::uint16_t low = 0, high = LastFinite(format);
  while (high - low > 1) {
    const auto middle = std::uint16_t((low + high) / 2);
    (ValueOf(format, middle) <= size ? low : high) = middle;
  }
  const double below = size - ValueOf(format, low), above = ValueOf(format, high) - size;
  std::uint16_t nearest = below < above ? low : high;
  if (below == above) nearest = low % 2 == 0 ? low : high;
  return std::uint16_t(nearest | (std::signbit(x) ? 0x8000 : 0));
}

// Floats of any size and sign: random bits, the midpoints of neighboring values, and the floats
// next to those midpoints.
std::vector<float> Numbers(HalfFormat format) {
  std::vector<float> x{0.0f,
                       -0.0f,
                       std::numeric_limits<float>::denorm_min(),
                       -std::numeric_limits<float>::min(),
                       std::numeric_limits<float>::max(),
                       std::numeric_limits<float>::lowest(),
                       65504,
                       65519.99f,
                       65520,
                       -1e6f};
  Rng rng({3, Purpose::kTest});
  while (x.size() < 4000) {
    const auto any = std::bit_cast<float>(rng.NextU32());
    if (std::isfinite(any)) x.push_back(any);
    const auto low = std::uint16_t(rng.Below(LastFinite(format)));
    const double middle =
        (ValueOf(format, low) + ValueOf(format, std::uint16_t(low + 1))) / 2;  // exact
    for (const float beside : {float(middle), std::nextafter(float(middle), 0.0f),
                               std::nextafter(float(middle), 1e9f), -float(middle)})
      x.push_back(beside);
  }
  return x;
}

class HalvesTest : public testing::TestWithParam<HalfFormat> {};

// The first time residuals are 0: what is sent is the nearest number. Then what stayed is added.
TEST_P(HalvesTest, RoundsToNearestAndKeepsResidual) {
  const HalfFormat format = GetParam();
  const std::vector<float> x = Numbers(format);
  const auto n = std::int64_t(x.size());
  for (const CpuLevel level : SupportedCpuLevels()) {
    const HalfKernels& kernels = HalfKernelsFor(level);
    std::vector<float> residual(x.size());
    std::vector<std::uint16_t> bits(x.size());
    for (const int step : {0, 1}) {
      const std::vector<float> before = residual;
      kernels.encode(format, n, x.data(), residual.data(), bits.data());
      for (std::size_t i = 0; i < x.size(); ++i) {
        const float whole = before[i] + x[i];
        if (!std::isfinite(whole)) continue;  // two of the largest
        ASSERT_EQ(bits[i], NearestTo(format, double(whole)))
            << CpuLevelName(level) << " step " << step << ": " << whole;
        ASSERT_EQ(residual[i], whole - float(ValueOf(format, bits[i])))
            << CpuLevelName(level) << " step " << step << ": " << whole;
      }
    }
  }
}

TEST_P(HalvesTest, DecodesAndScalesEveryValue) {
  const HalfFormat format = GetParam();
  std::vector<std::uint16_t> bits;
  for (std::uint32_t i = 0; i <= LastFinite(format); ++i) {
    bits.push_back(std::uint16_t(i));
    bits.push_back(std::uint16_t(i | 0x8000));
  }
  bits.pop_back();  // odd, for the tails
  const auto n = std::int64_t(bits.size());
  for (const CpuLevel level : SupportedCpuLevels()) {
    std::vector<float> written(bits.size(), 7.0f), sum(bits.size(), 0.1f);
    HalfKernelsFor(level).write(format, n, 1.0f / 3, bits.data(), written.data());
    HalfKernelsFor(level).add(format, n, 1.0f / 3, bits.data(), sum.data());
    for (std::size_t i = 0; i < bits.size(); ++i) {
      const float part = 1.0f / 3 * float(ValueOf(format, bits[i]));
      ASSERT_EQ(written[i], part) << CpuLevelName(level) << " " << bits[i];
      ASSERT_EQ(sum[i], 0.1f + part) << CpuLevelName(level) << " " << bits[i];
    }
  }
}

TEST_P(HalvesTest, FindsFirstNonFiniteValue) {
  const HalfFormat format = GetParam();
  const std::uint16_t infinity = std::uint16_t(LastFinite(format) + 1);
  for (const CpuLevel level : SupportedCpuLevels()) {
    for (const std::size_t n :
         {std::size_t{1}, std::size_t{127}, std::size_t{128}, std::size_t{300}}) {
      std::vector<std::uint16_t> bits(n, LastFinite(format));
      const auto first = [&] {
        return HalfKernelsFor(level).first_unfinite(format, std::int64_t(n), bits.data());
      };
      EXPECT_EQ(first(), std::int64_t(n)) << CpuLevelName(level);
      for (std::size_t i = n; i-- > 0;) {  // the others behind it stay
        bits[i] = i % 3 == 0 ? infinity : i % 3 == 1 ? 0xffff : std::uint16_t(infinity | 0x8001);
        ASSERT_EQ(first(), std::int64_t(i)) << CpuLevelName(level) << " of " << n;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, HalvesTest, testing::Values(HalfFormat::kF16, HalfFormat::kBf16),
                         [](const auto& info) {
                           return info.param == HalfFormat::kF16 ? "F16" : "Bf16";
                         });

}  // namespace
}  // namespace troop
