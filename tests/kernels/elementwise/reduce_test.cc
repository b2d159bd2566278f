#include "kernels/elementwise/reduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "core/base/philox.h"
#include "kernels/elementwise/cast.h"

namespace troop {
namespace {

constexpr Reduction kReductions[] = {Reduction::kSum, Reduction::kMax, Reduction::kMin};

template <class T>
T Expected(Reduction reduction, T a, T b) {
  if (reduction == Reduction::kSum) return T(a + b);
  return reduction == Reduction::kMax ? std::max(a, b) : std::min(a, b);
}

// Odd sizes leave a tail on every instruction set; in place on either side.
template <class T>
void CheckType(T (*draw)(Rng*)) {
  Rng rng({1, Purpose::kTest});
  for (const CpuLevel level : SupportedCpuLevels()) {
    for (const Reduction reduction : kReductions) {
      for (const std::int64_t n : {0, 1, 7, 263}) {
        std::vector<T> a(n), b(n), out(n), want(n);
        for (std::int64_t i = 0; i < n; ++i) {
          a[i] = draw(&rng);
          b[i] = draw(&rng);
          want[i] = Expected(reduction, a[i], b[i]);
        }
        ReduceArgs args{.reduction = reduction,
                        .dtype = DTypeOf<T>::value,
                        .n = n,
                        .a = a.data(),
                        .b = b.data(),
                        .out = out.data()};
        ReduceFor(level)(args);
        EXPECT_EQ(out, want) << CpuLevelName(level) << " " << ReductionName(reduction);
        std::vector<T> left = a;
        args.a = args.out = left.data();
        ReduceFor(level)(args);
        EXPECT_EQ(left, want);
        args.a = a.data();
        args.out = b.data();
        ReduceFor(level)(args);
        EXPECT_EQ(b, want);
      }
    }
  }
}

TEST(ReduceTest, EachTypeMatchesReferenceAtEveryLevel) {
  CheckType<float>([](Rng* rng) { return float(rng->Normal()); });
  CheckType<double>([](Rng* rng) { return rng->Normal(); });
  CheckType<std::uint8_t>([](Rng* rng) { return std::uint8_t(rng->NextU32()); });
  CheckType<std::int32_t>([](Rng* rng) { return std::int32_t(rng->NextU32() >> 2) - (1 << 28); });
  CheckType<std::int64_t>([](Rng* rng) { return std::int64_t(rng->NextU64() >> 2) - (1L << 60); });
  CheckType<std::uint32_t>([](Rng* rng) { return rng->NextU32(); });
  CheckType<std::uint64_t>([](Rng* rng) { return rng->NextU64(); });
}

TEST(ReduceTest, AddsBf16InF32AndRoundsOnce) {
  Rng rng({2, Purpose::kTest});
  std::vector<BF16> a(263), b(263), out(263);
  for (BF16& x : a) x = ToBF16(float(rng.Normal()));
  for (BF16& x : b) x = ToBF16(float(rng.Normal()));
  for (const CpuLevel level : SupportedCpuLevels()) {
    ReduceFor(level)(
        {.dtype = DType::kBF16, .n = 263, .a = a.data(), .b = b.data(), .out = out.data()});
    for (std::size_t i = 0; i < out.size(); ++i) {
      EXPECT_EQ(out[i].bits, ToBF16(ToF32(a[i]) + ToF32(b[i])).bits);
    }
  }
}

TEST(ReduceTest, PropagatesNaNFromEitherSide) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> a(40, nan), b(40, 1);
  std::vector<float> out(40);
  for (const CpuLevel level : SupportedCpuLevels()) {
    for (const Reduction reduction : kReductions) {
      ReduceArgs args{
          .reduction = reduction, .n = 40, .a = a.data(), .b = b.data(), .out = out.data()};
      ReduceFor(level)(args);
      EXPECT_TRUE(std::ranges::all_of(out, [](float x) { return std::isnan(x); }));
      std::swap(args.a, args.b);
      ReduceFor(level)(args);
      EXPECT_TRUE(std::ranges::all_of(out, [](float x) { return std::isnan(x); }));
    }
  }
}

TEST(ReduceTest, IntegersWrap) {
  const std::int32_t large = std::numeric_limits<std::int32_t>::max(), one = 1;
  std::int32_t out = 0;
  Reduce({.dtype = DType::kI32, .n = 1, .a = &large, .b = &one, .out = &out});
  EXPECT_EQ(out, std::numeric_limits<std::int32_t>::min());
}

}  // namespace
}  // namespace troop
