#include "kernels/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "core/rng.h"

namespace troop {
namespace {

// The value from the definition, in f64.
double ValueOf(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const double mantissa = bits & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

TEST(HalfTest, EveryNumberIsReadAndWrittenBack) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const float value = ToF32(F16{std::uint16_t(bits)});
    if ((bits & 0x7c00) == 0x7c00) {
      EXPECT_EQ(std::isnan(value), (bits & 0x3ff) != 0);
      EXPECT_EQ(std::isinf(value), (bits & 0x3ff) == 0);
      EXPECT_EQ(std::isnan(value), std::isnan(ToF32(ToF16(value))));
      continue;
    }
    ASSERT_EQ(double(value), ValueOf(std::uint16_t(bits)));
    ASSERT_EQ(ToF16(value).bits, bits);
  }
}

// Between each two neighbours: the middle goes to the even one, what is beside it to the nearer.
TEST(HalfTest, RoundsToTheNearestAndTiesToEven) {
  for (std::uint16_t low = 0; low < 0x7bff; ++low) {
    const auto high = std::uint16_t(low + 1);
    const auto middle = float((ValueOf(low) + ValueOf(high)) / 2);  // exact
    ASSERT_EQ(ToF16(middle).bits, low % 2 == 0 ? low : high);
    ASSERT_EQ(ToF16(std::nextafter(middle, 0.0f)).bits, low);
    ASSERT_EQ(ToF16(std::nextafter(middle, 1e9f)).bits, high);
    ASSERT_EQ(ToF16(-middle).bits, 0x8000 | ToF16(middle).bits);
  }
  EXPECT_EQ(ToF32(ToF16(65519.99f)), kF16Max);
  EXPECT_TRUE(std::isinf(ToF32(ToF16(65520))));
  EXPECT_TRUE(std::isinf(ToF32(ToF16(-1e30f))));
}

}  // namespace
}  // namespace troop
