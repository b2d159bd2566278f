#include "core/metrics/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace troop {
namespace {

TEST(MetricsTest, CountersAddAndGaugesReplace) {
  Metrics metrics;
  metrics.Count("actor/steps");
  metrics.Count("actor/steps", 9);
  metrics.Gauge("learner/loss", 3);
  metrics.Gauge("learner/loss", 2);
  EXPECT_EQ(metrics.Get("actor/steps"), 10);
  EXPECT_EQ(metrics.Get("learner/loss"), 2);
  EXPECT_EQ(metrics.Get("unknown"), 0);
  EXPECT_EQ(metrics.snapshot().size(), 2u);
}

TEST(MetricsTest, MergesByMetricKind) {
  Metrics a, b, c;
  a.Count("steps", 3);
  b.Count("steps", 4);
  a.Gauge("items", 10, MetricKind::kGaugeSum);
  c.Gauge("items", 5, MetricKind::kGaugeSum);
  a.Gauge("loss", 1);
  b.Gauge("loss", 2);
  c.Gauge("loss", 6);
  a.Gauge("oldest", 4, MetricKind::kGaugeMin);
  b.Gauge("oldest", 3, MetricKind::kGaugeMin);
  b.Gauge("lag", -7, MetricKind::kGaugeMax);
  c.Gauge("lag", -9, MetricKind::kGaugeMax);
  const MetricSnapshot merged = MergeMetrics({a.snapshot(), b.snapshot(), c.snapshot()});
  ASSERT_EQ(merged.size(), 5u);
  EXPECT_EQ(merged.at("steps").value, 7);
  EXPECT_EQ(merged.at("items").value, 15);
  EXPECT_EQ(merged.at("loss").value, 3);
  EXPECT_EQ(merged.at("oldest").value, 3);
  EXPECT_EQ(merged.at("lag").value, -7);
  EXPECT_EQ(merged.at("lag").kind, MetricKind::kGaugeMax);
}

TEST(MetricsTest, MergesHistogramsOfRoles) {
  Histogram small, large;
  small.Add(1, 3);
  large.Add(9);
  Metrics a, b, c;
  a.Distribution("age", small);
  b.Distribution("age", large);
  c.Count("age", 5);  // another kind under the same name
  const MetricSnapshot merged = MergeMetrics({a.snapshot(), b.snapshot(), c.snapshot()});
  EXPECT_EQ(merged.at("age").kind, MetricKind::kHistogram);
  EXPECT_EQ(merged.at("age").histogram.count(), 4u);
  EXPECT_EQ(merged.at("age").histogram.max(), 9);
  EXPECT_EQ(merged.at("age").value, 3);
  EXPECT_EQ(a.Get("age"), 1);
}

// Means of roles were averaged as if all had as many samples.
TEST(MetricsTest, WeightsMergedRatiosBySampleCount) {
  Metrics a, b, c, none;
  a.Ratio("accuracy", 1, 6);
  b.Ratio("accuracy", 0.5, 4);
  c.Ratio("accuracy", 0, 2);
  none.Ratio("accuracy", 0, 0);
  EXPECT_TRUE(none.snapshot().empty());
  const MetricSnapshot first = MergeMetrics({c.snapshot(), b.snapshot()});
  const MetricSnapshot merged = MergeMetrics({first, none.snapshot(), a.snapshot()});
  EXPECT_DOUBLE_EQ(merged.at("accuracy").value, 8.0 / 12);
  EXPECT_EQ(merged.at("accuracy").count, 12);
  a.Ratio("accuracy", 0, 0);  // no samples since
  EXPECT_EQ(a.Get("accuracy"), 1);
  // Counts from outside that are none.
  MetricSnapshot wrong = b.snapshot();
  for (const double count : {-4.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    wrong.at("accuracy").count = count;
    EXPECT_EQ(MergeMetrics({wrong, a.snapshot()}).at("accuracy").value, 1) << count;
    EXPECT_EQ(MergeMetrics({a.snapshot(), wrong}).at("accuracy").value, 1) << count;
  }
}

TEST(MetricsTest, MeanCountsOnlyReportingRoles) {
  Metrics learner, actor;
  learner.Gauge("learner/loss", 8);
  actor.Count("actor/steps");
  EXPECT_EQ(MergeMetrics({learner.snapshot(), actor.snapshot()}).at("learner/loss").value, 8);
  EXPECT_TRUE(MergeMetrics({}).empty());
}

}  // namespace
}  // namespace troop
