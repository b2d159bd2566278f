#include "fleet/run/metrics_reader.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "tests/core/temp_folder.h"

namespace troop {
namespace {

class MetricCurveTest : public testing::Test {
 protected:
  std::string path() const { return temp_.path() + "/metrics.jsonl"; }
  void Append(const std::string& text) { std::ofstream(path(), std::ios::app) << text; }
  // Steps 10 i, and twice as many of something else; a line each tenth of a second.
  static std::string Line(int i) {
    return fmt::format(R"({{"wall_s": {}, "phase": "running", "steps": {}, "twice": {}, "h": )"
                       R"({{"count": 3, "p50": {}, "p90": 7, "p99": 8, "max": 9}}}})"
                       "\n",
                       0.1 * i, 10 * i, 20 * i, i);
  }
  void AppendLines(int from, int to) {
    std::string text;
    for (int i = from; i < to; ++i) text += Line(i);
    Append(text);
  }

  TempFolder temp_;
};

TEST_F(MetricCurveTest, KeepsEveryLineOfShortRun) {
  AppendLines(0, 300);
  MetricsReader curve(path());
  ASSERT_TRUE(curve.Update().ok());
  const std::vector<double> steps = curve.Values("steps");
  ASSERT_EQ(steps.size(), 300u);
  for (int i = 0; i < 300; ++i) EXPECT_EQ(steps[std::size_t(i)], 10 * i);
  EXPECT_EQ(curve.Values("h.p50")[7], 7);
  EXPECT_EQ(curve.names(),
            (std::vector<std::string>{"h.p50", "h.p90", "h.p99", "steps", "twice", "wall_s"}));
}

TEST_F(MetricCurveTest, BoundsPointsOfLongRunWithoutDistortion) {
  constexpr int kLines = 40000;
  MetricsReader curve(path());
  int written = 0;
  for (const int to : {1, 3, 700, 701, 9000, kLines}) {  // as it grows
    AppendLines(written, to);
    written = to;
    ASSERT_TRUE(curve.Update().ok());
    ASSERT_LE(curve.points(), MetricsReader::kPointsMax);
    ASSERT_GE(curve.points(),
              std::min<std::size_t>(std::size_t(to), MetricsReader::kPointsMax / 4));
    const std::vector<double> steps = curve.Values("steps"), twice = curve.Values("twice");
    EXPECT_EQ(steps[0], 0);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      EXPECT_EQ(twice[i], 2 * steps[i]);
      EXPECT_EQ(std::fmod(steps[i], 10), 0);
      EXPECT_GT(steps[i], i > 0 ? steps[i - 1] : -1);
    }
    EXPECT_EQ(NumberOf(curve.last(), "steps"), 10 * (to - 1));
  }
  const std::vector<double> few = curve.Values("steps", 100);
  EXPECT_LE(few.size(), 101u);
  EXPECT_GE(few.size(), 50u);
  EXPECT_EQ(few.back(), curve.Values("steps").back());
}

TEST_F(MetricCurveTest, SkipsTornAndForeignLines) {
  Append(Line(1) + "{\"steps\": 5, \"tw\n" + Line(2) + std::string(300000, 'x') + "\n[]\n\n" +
         std::string("\0\xff\n", 3) + Line(3) + "{\"steps\": 77");
  MetricsReader curve(path());
  ASSERT_TRUE(curve.Update().ok());
  std::vector<double> steps;
  for (const double value : curve.Values("steps")) {
    if (!std::isnan(value)) steps.push_back(value);
  }
  ASSERT_FALSE(steps.empty());
  for (const double value : steps) EXPECT_TRUE(value == 10 || value == 20 || value == 30) << value;
  EXPECT_EQ(NumberOf(curve.last(), "steps"), 30);
  Append("7}\n");  // its end comes
  ASSERT_TRUE(curve.Update().ok());
  EXPECT_EQ(NumberOf(curve.last(), "steps"), 777);
}

TEST_F(MetricCurveTest, RereadsReplacedFile) {
  AppendLines(0, 100);
  MetricsReader curve(path());
  ASSERT_TRUE(curve.Update().ok());
  std::filesystem::remove(path());
  EXPECT_EQ(curve.Update().code(), Code::kNotFound);
  AppendLines(500, 503);
  ASSERT_TRUE(curve.Update().ok());
  EXPECT_EQ(curve.Values("steps"), (std::vector<double>{5000, 5010, 5020}));
}

TEST_F(MetricCurveTest, ComputesRatesOverLastFiveSeconds) {
  AppendLines(0, 100);  // 100 steps a second
  Append(R"({"wall_s": 19.9, "steps": 2990})"
         "\n");  // 2000 more in ten seconds
  MetricsReader curve(path());
  ASSERT_TRUE(curve.Update().ok());
  EXPECT_NEAR(curve.Rate("steps"), 200, 1e-9);
  EXPECT_EQ(curve.Rate("nothing"), 0);
}

TEST_F(MetricCurveTest, KeepsHistogramUntilNonEmptyOne) {
  AppendLines(0, 2);
  MetricsReader curve(path());
  ASSERT_TRUE(curve.Update().ok());
  EXPECT_EQ(NumberOf(curve.histograms().at("h"), "p50"), 1);
  Append(R"({"wall_s": 9, "h": {"count": 0, "p50": null}})"
         "\n");
  ASSERT_TRUE(curve.Update().ok());
  EXPECT_EQ(NumberOf(curve.histograms().at("h"), "p50"), 1);
  Append(R"({"wall_s": 10, "h": {"count": 2, "p50": 6}})"
         "\n");
  ASSERT_TRUE(curve.Update().ok());
  EXPECT_EQ(NumberOf(curve.histograms().at("h"), "p50"), 6);
}

TEST_F(MetricCurveTest, RateOfSingleLineIsZero) {
  AppendLines(3, 4);
  MetricsReader curve(path());
  ASSERT_TRUE(curve.Update().ok());
  EXPECT_EQ(curve.Rate("steps"), 0);
}

}  // namespace
}  // namespace troop
