#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "core/base/philox.h"
#include "core/metrics/metrics.h"
#include "net/wire/codec.h"

namespace troop {
namespace {

Histogram Some() {
  Histogram histogram;
  for (const double v : {0.0, 1.0, 2.5, 2.6, 700.0}) histogram.Add(v);
  return histogram;
}

TEST(MetricsCodecTest, RoundTripsSnapshotsWithHistograms) {
  Metrics metrics;
  metrics.Count("steps", 7);
  metrics.Distribution("age", Some());
  metrics.Distribution("nothing", {});
  metrics.Gauge("zoom", 2, MetricKind::kGaugeMax);
  metrics.Ratio("loss", 0.5, 12);
  const auto read = DecodeBody<MetricSnapshot>(EncodeBody(metrics.snapshot()));
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  ASSERT_EQ(read->size(), 5u);
  EXPECT_EQ(read->at("age").histogram, Some());
  EXPECT_EQ(read->at("age").value, Some().mean());
  EXPECT_EQ(read->at("nothing").histogram, Histogram());
  EXPECT_EQ(read->at("steps").value, 7);
  EXPECT_EQ(read->at("zoom").value, 2);
  EXPECT_EQ(read->at("loss").value, 0.5);
  EXPECT_EQ(read->at("loss").count, 12);
}

// first u16, counts u32 + u64 each, sum, sum of squares, min, max
std::string Bytes(std::uint16_t first, const std::vector<std::uint64_t>& counts,
                  const std::vector<double>& numbers) {
  std::string bytes = EncodeBody(first) + EncodeBody(counts);
  for (const double x : numbers) bytes += EncodeBody(x);
  return bytes;
}

TEST(MetricsCodecTest, RejectsInconsistentHistogram) {
  Histogram three;
  three.Add(3);
  std::uint16_t first = 0;
  while (three.bucket(first) == 0) ++first;
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  ASSERT_EQ(DecodeBody<Histogram>(Bytes(first, {1}, {3, 9, 3, 3})).value(), three);
  for (const std::string& bytes :
       {Bytes(60000, {1}, {3, 9, 3, 3}),
        Bytes(first, std::vector<std::uint64_t>(500, 1), {3, 9, 3, 3}),
        Bytes(first, {0}, {3, 9, 3, 3}), Bytes(first, {1, 0}, {3, 9, 3, 3}),
        Bytes(first, {~0ull, 2}, {3, 9, 3, 3.5}), Bytes(first, {}, {3, 9, 3, 3}),
        Bytes(first, {1}, {kNan, 9, 3, 3}), Bytes(first, {1}, {3, -9, 3, 3}),
        Bytes(first, {1}, {3, 9, 4, 3}), Bytes(first, {1}, {3, 9, 3, 900}),
        Bytes(first, {1}, {3, 9, 0, 3}), Bytes(0, {}, {0, 0, -0.0, 0})}) {
    EXPECT_EQ(DecodeBody<Histogram>(bytes).status().code(), Code::kDataLoss);
  }
}

// A reader may see anything: it must answer, and what it takes must be writable again.
TEST(MetricsCodecTest, ToleratesDamagedHistograms) {
  Rng rng({.run_seed = 51});
  const std::string whole = EncodeBody(Some());
  int taken = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string bytes =
        whole.substr(0, rng.Below(4) == 0 ? rng.Below(std::uint32_t(whole.size())) : whole.size());
    for (std::uint32_t i = rng.Below(4); i > 0 && !bytes.empty(); --i) {
      bytes[rng.Below(std::uint32_t(bytes.size()))] = char(rng.NextU32());
    }
    const auto read = DecodeBody<Histogram>(bytes);
    if (!read.ok()) continue;
    ++taken;
    EXPECT_EQ(EncodeBody(*read), bytes);
    Histogram merged = Some();
    merged.Merge(*read);
    EXPECT_GE(merged.Quantile(0.9), merged.min());
  }
  EXPECT_GT(taken, 0);
}

// A body of 16 MiB became 600 MiB of buckets.
TEST(MetricsCodecTest, RejectsSnapshotExceedingMemoryLimit) {
  MetricSnapshot metrics;
  Histogram three;
  three.Add(3);
  const auto add = [&](int count) {
    for (int i = int(metrics.size()); i < count; ++i) {
      metrics[std::to_string(i)] = {MetricKind::kHistogram, 0, three};
    }
  };
  add(10'000);  // more than a fleet has
  EXPECT_TRUE(DecodeBody<MetricSnapshot>(EncodeBody(metrics)).ok());
  add(50'000);
  const std::string bytes = EncodeBody(metrics);
  EXPECT_LT(bytes.size(), kBodyBytesMax);
  const auto read = DecodeBody<MetricSnapshot>(bytes);
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.status().message().find("exceeds the limit"), std::string::npos)
      << read.status().message();
}

}  // namespace
}  // namespace troop
