#include "fleet/run/learning_curve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "tests/core/temp_folder.h"

namespace troop {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Exact interval over all 5^5 resamples: the means at 2.5 % and 97.5 %.
MeanInterval ExactInterval(const std::vector<double>& values) {
  const std::size_t n = values.size();
  std::vector<double> means;
  std::size_t count = 1;
  for (std::size_t i = 0; i < n; ++i) count *= n;
  for (std::size_t code = 0; code < count; ++code) {
    double sum = 0;
    for (std::size_t i = 0, rest = code; i < n; ++i, rest /= n) sum += values[rest % n];
    means.push_back(sum / double(n));
  }
  std::ranges::sort(means);
  double mean = 0;
  for (const double value : values) mean += value / double(n);
  return {mean, means[std::size_t(0.025 * double(count))],
          means[std::size_t(0.975 * double(count))]};
}

TEST(BootstrapTest, IntervalMatchesAllResamples) {
  const std::vector<double> values{1, 2, 4, 8, 16};
  const MeanInterval want = ExactInterval(values), got = BootstrapMean(values);
  EXPECT_DOUBLE_EQ(got.mean, 6.2);
  EXPECT_NEAR(got.low, want.low, 0.25);  // the seed is fixed: no false alarm
  EXPECT_NEAR(got.high, want.high, 0.25);
  EXPECT_EQ(BootstrapMean(values), got) << "the same each time";
}

TEST(BootstrapTest, IntervalOfEqualValuesHasNoWidth) {
  EXPECT_EQ(BootstrapMean(std::vector{7.5}), (MeanInterval{7.5, 7.5, 7.5}));
  EXPECT_EQ(BootstrapMean(std::vector{3.0, 3.0, 3.0}), (MeanInterval{3, 3, 3}));
}

class RunCurveTest : public testing::Test {
 protected:
  void Write(const std::string& file, const std::string& text) {
    std::ofstream(temp_.path() + "/" + file) << text;
  }
  TempFolder temp_;
};

TEST_F(RunCurveTest, OmitsPointsUndoneByResume) {
  Write("config.toml", "name = \"x\"\n");
  Write("evaluations.jsonl",
        "{\"wall_s\": 60, \"steps\": 100, \"updates\": 1, \"return_mean\": 1}\n"
        "{\"wall_s\": 90, \"steps\": 300, \"updates\": 3, \"return_mean\": -5}\n"
        "{\"wall_s\": 99, \"steps\": 3\n"
        "{\"wall_s\": 120, \"steps\": 200, \"updates\": 2, \"return_mean\": 2.5}\n");
  const auto steps = ReadRunCurve(temp_.path(), CurveAxis::kSteps);
  ASSERT_TRUE(steps.ok()) << steps.status().ToString();
  EXPECT_TRUE(steps->evaluated);
  EXPECT_THAT(steps->xs, ElementsAre(100, 200));
  EXPECT_THAT(steps->returns, ElementsAre(1, 2.5));
  EXPECT_THAT(ReadRunCurve(temp_.path(), CurveAxis::kUpdates)->xs, ElementsAre(1, 2));
}

TEST_F(RunCurveTest, ReadsMinutesFromWallClock) {
  Write("config.toml", "name = \"x\"\n");
  Write("evaluations.jsonl", "{\"wall_s\": 90, \"steps\": 100, \"return_mean\": 1}\n");
  EXPECT_THAT(ReadRunCurve(temp_.path(), CurveAxis::kMinutes)->xs, ElementsAre(1.5));
}

TEST_F(RunCurveTest, UsesTrainingReturnWithoutEvaluator) {
  Write("config.toml", "evaluator.enabled = false\n");
  Write("metrics.jsonl",
        "{\"steps\": 10, \"episode_return_mean\": 0, \"actor/episodes\": 0}\n"
        "{\"steps\": 20, \"episode_return_mean\": 9, \"actor/episodes\": 2}\n");
  const auto curve = ReadRunCurve(temp_.path(), CurveAxis::kSteps);
  ASSERT_TRUE(curve.ok()) << curve.status().ToString();
  EXPECT_FALSE(curve->evaluated);
  EXPECT_THAT(curve->xs, ElementsAre(20));
  EXPECT_THAT(curve->returns, ElementsAre(9));
}

TEST_F(RunCurveTest, NewRunHasNoPoints) {
  EXPECT_EQ(ReadRunCurve(temp_.path(), CurveAxis::kSteps).status().code(), Code::kNotFound);
  Write("config.toml", "name = \"x\"\n");
  const auto curve = ReadRunCurve(temp_.path(), CurveAxis::kSteps);
  ASSERT_TRUE(curve.ok()) << curve.status().ToString();
  EXPECT_THAT(curve->xs, IsEmpty());
}

RunCurve Line(std::vector<double> xs, std::vector<double> returns) {
  RunCurve curve;
  curve.xs = std::move(xs);
  curve.returns = std::move(returns);
  return curve;
}

TEST(PlotCurvesTest, PlotsSeedsAndTheirMeanOverCommonRange) {
  const CurveGroup group{"n = 3", {Line({0, 10}, {0, 10}), Line({2, 4, 20}, {4, 8, 8})}};
  const LinePlot plot = PlotCurves({{"one", {Line({1, 2}, {3, 4})}}, group}, CurveAxis::kSteps);
  ASSERT_EQ(plot.series.size(), 4u);
  EXPECT_TRUE(plot.series[0].faint && plot.series[1].faint);
  EXPECT_EQ(plot.series[0].name, "");
  EXPECT_EQ(plot.series[2].name, "one");
  EXPECT_THAT(plot.series[2].low, IsEmpty());
  const LinePlot::Series& mean = plot.series[3];
  EXPECT_EQ(mean.name, "n = 3 (range of 2)") << "not a 95 % interval";
  EXPECT_EQ(mean.color, plot.series[0].color);
  EXPECT_EQ(mean.xs.front(), 2);
  EXPECT_EQ(mean.xs.back(), 10);
  EXPECT_DOUBLE_EQ(mean.ys.front(), 3);  // of 2 and 4
  EXPECT_DOUBLE_EQ(mean.ys.back(), 9);   // of 10 and 8
  EXPECT_DOUBLE_EQ(mean.low.back(), 8);  // of two values: the lower and the higher one
  EXPECT_DOUBLE_EQ(mean.high.back(), 10);
}

}  // namespace
}  // namespace troop
