#include "core/metrics/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/base/philox.h"
#include "core/storage/json.h"

namespace troop {
namespace {

Rng TestRng(std::uint64_t index) { return Rng({.run_seed = 41, .index = index}); }

// Ages, losses, zeros: over many powers of ten.
std::vector<double> Values(std::size_t count, Rng* rng) {
  std::vector<double> values(count);
  for (double& v : values) {
    v = rng->Below(10) == 0 ? 0 : std::pow(10.0, rng->Uniform(-4, 9));
    if (rng->Below(2) == 0) v = std::floor(v);
  }
  return values;
}

Histogram Of(const std::vector<double>& values) {
  Histogram histogram;
  for (const double v : values) histogram.Add(v);
  return histogram;
}

TEST(HistogramTest, ValuesLieWithinLimitsOfTheirBucket) {
  Rng rng = TestRng(1);
  std::vector<double> values = Values(1000, &rng);
  for (int b = 0; b + 1 < Histogram::kBuckets; ++b) {
    const double limit = Histogram::Limit(b);
    values.insert(values.end(), {limit, std::nextafter(limit, 0.0)});
    ASSERT_LT(limit, Histogram::Limit(b + 1));
  }
  values.insert(values.end(), {-3, 1e300, std::numeric_limits<double>::infinity(), 5e-324});
  for (const double v : values) {
    const Histogram histogram = Of({v});
    int found = 0;
    for (int b = 0; b < Histogram::kBuckets; ++b) {
      if (histogram.bucket(b) == 0) continue;
      ++found;
      EXPECT_TRUE(v >= Histogram::Limit(b - 1)) << v;
      EXPECT_TRUE(v < Histogram::Limit(b) || b == Histogram::kBuckets - 1) << v;
    }
    ASSERT_EQ(found, 1) << v;
  }
}

TEST(HistogramTest, HasFourBucketsPerPowerOfTwo) {
  const Histogram one = Of({1});
  int b = 0;
  while (one.bucket(b) == 0) ++b;
  EXPECT_EQ(Histogram::Limit(b - 1), 1);
  EXPECT_EQ(Histogram::Limit(b), 1.25);
  EXPECT_EQ(Histogram::Limit(b + 1), 1.5);
  EXPECT_EQ(Histogram::Limit(b + 3), 2);
  EXPECT_EQ(Histogram::Limit(b + 4), 2.5);
}

TEST(HistogramTest, SumsMatchValues) {
  Rng rng = TestRng(2);
  const std::vector<double> values = Values(5000, &rng);
  const Histogram histogram = Of(values);
  double sum = 0, squares = 0;
  for (const double v : values) {
    sum += v;
    squares += v * v;
  }
  EXPECT_EQ(histogram.count(), values.size());
  EXPECT_EQ(histogram.sum(), sum);
  EXPECT_EQ(histogram.sum_squares(), squares);
  EXPECT_EQ(histogram.mean(), sum / 5000);
  EXPECT_EQ(histogram.min(), *std::ranges::min_element(values));
  EXPECT_EQ(histogram.max(), *std::ranges::max_element(values));
}

TEST(HistogramTest, QuantilesMatchSortedValuesWithinQuarter) {
  Rng rng = TestRng(3);
  for (const std::size_t count : {1u, 2u, 7u, 100u, 10000u}) {
    std::vector<double> values = Values(count, &rng);
    const Histogram histogram = Of(values);
    std::ranges::sort(values);
    double before = 0;
    for (const double q : {0.0, 0.01, 0.5, 0.9, 0.99, 1.0}) {
      const auto rank = std::size_t(std::ceil(q * double(count)));
      const double exact = values[std::max<std::size_t>(rank, 1) - 1];
      const double found = histogram.Quantile(q);
      EXPECT_NEAR(found, exact, 0.25 * exact + std::ldexp(1, Histogram::kExponentMin))
          << q << " of " << count;
      EXPECT_TRUE(found >= histogram.min() && found <= histogram.max());
      EXPECT_GE(found, before);
      before = found;
    }
    EXPECT_EQ(histogram.Quantile(1), values.back());
  }
  EXPECT_EQ(Of({3, 3, 3}).Quantile(0.5), 3);
}

TEST(HistogramTest, MergeEqualsAddingAllToOne) {
  Rng rng = TestRng(4);
  // Whole numbers, so that the sums are exact in any order.
  std::vector<double> a = Values(300, &rng), b = Values(500, &rng), both;
  for (std::vector<double>* values : {&a, &b}) {
    for (double& v : *values) v = std::floor(std::min(v, 1e6));
    both.insert(both.end(), values->begin(), values->end());
  }
  Histogram merged = Of(a);
  merged.Merge(Of(b));
  EXPECT_EQ(merged, Of(both));
  merged.Merge({});
  EXPECT_EQ(merged, Of(both));
  Histogram empty;
  empty.Merge(Of(both));
  EXPECT_EQ(empty, Of(both));
}

TEST(HistogramTest, ComputesDifferenceSinceEarlierState) {
  const Histogram earlier = Of({1, 5, 5, 1000});
  Histogram now = earlier;
  now.Add(6);
  now.Add(40, 3);
  const Histogram since = now.Since(earlier);
  EXPECT_EQ(since.count(), 4u);
  EXPECT_EQ(since.sum(), 126);
  EXPECT_EQ(since.sum_squares(), 36 + 4800);
  EXPECT_TRUE(since.min() > 4.5 && since.min() <= 6) << since.min();
  EXPECT_TRUE(since.max() >= 40 && since.max() < 48) << since.max();
  EXPECT_EQ(now.Since({}), now);
  EXPECT_EQ(now.Since(now), Histogram());
  EXPECT_EQ(earlier.Since(now), earlier);  // a role that restarted
}

TEST(HistogramTest, ToleratesNonFiniteAndHugeValues) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  Histogram histogram;
  histogram.Add(std::nan(""));
  EXPECT_EQ(histogram.count(), 0u);
  histogram.Add(1, 0);
  EXPECT_EQ(histogram, Histogram());
  for (const double v : {kInf, kInf, -kInf, 1e308}) histogram.Add(v, 1000);
  EXPECT_EQ(histogram.count(), 4000u);
  for (const double v : {histogram.sum(), histogram.sum_squares(), histogram.min(), histogram.max(),
                         histogram.Quantile(0.5)}) {
    EXPECT_FALSE(std::isnan(v));
  }
  EXPECT_TRUE(std::isfinite(histogram.max()));
}

TEST(HistogramTest, QuantilesOfHugeValuesStayWithinRange) {
  constexpr double kHuge = std::numeric_limits<double>::max();
  for (const double value : {-kHuge, kHuge}) {
    Histogram histogram;
    histogram.Add(value, 1000);
    histogram.Add(0.5 * value, 1000);
    for (const double q : {0.0, 0.001, 0.25, 0.5, 0.75, 0.999, 1.0}) {
      EXPECT_GE(histogram.Quantile(q), std::min(value, 0.5 * value)) << q;
      EXPECT_LE(histogram.Quantile(q), std::max(value, 0.5 * value)) << q;
    }
  }
}

TEST(HistogramTest, JsonHasCountQuantilesMaxAndOctaves) {
  Histogram histogram;
  histogram.Add(2, 10);
  EXPECT_EQ(histogram.Json().str(),
            R"({"count": 10, "p50": 2, "p90": 2, "p99": 2, "max": 2, "octaves": [[2, 10]]})");
  EXPECT_EQ(Histogram().Json().str(),
            R"({"count": 0, "p50": null, "p90": null, "p99": null, "max": null, "octaves": []})");
}

TEST(HistogramTest, JsonCountsEachValueInItsOctave) {
  Histogram histogram;
  for (const double value : {0.0, 0.5, 0.99, 1.0, 1.9, 3.99, 4.0, 1e30}) histogram.Add(value);
  const std::string json = histogram.Json().str();
  EXPECT_NE(json.find(R"("octaves": [[0, 1], [0.5, 2], [1, 2], [2, 1], [4, 1], [1759)"),
            std::string::npos)
      << json;
}

}  // namespace
}  // namespace troop
