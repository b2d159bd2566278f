#include "core/metrics.h"

#include <gtest/gtest.h>

namespace troop {
namespace {

TEST(MetricsTest, CountersGrowAndGaugesAreReplaced) {
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

TEST(MetricsTest, MergingAddsAveragesOrTakesTheMostByKind) {
  Metrics a, b, c;
  a.Count("steps", 3);
  b.Count("steps", 4);
  a.Gauge("items", 10, MetricKind::kGaugeSum);
  c.Gauge("items", 5, MetricKind::kGaugeSum);
  a.Gauge("loss", 1);
  b.Gauge("loss", 2);
  c.Gauge("loss", 6);
  b.Gauge("lag", -7, MetricKind::kGaugeMax);
  c.Gauge("lag", -9, MetricKind::kGaugeMax);
  const MetricSnapshot merged = MergeMetrics({a.snapshot(), b.snapshot(), c.snapshot()});
  ASSERT_EQ(merged.size(), 4u);
  EXPECT_EQ(merged.at("steps").value, 7);
  EXPECT_EQ(merged.at("items").value, 15);
  EXPECT_EQ(merged.at("loss").value, 3);
  EXPECT_EQ(merged.at("lag").value, -7);
  EXPECT_EQ(merged.at("lag").kind, MetricKind::kGaugeMax);
}

TEST(MetricsTest, HistogramsOfRolesAddUp) {
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

TEST(MetricsTest, AMeanCountsOnlyTheRolesThatReport) {
  Metrics learner, actor;
  learner.Gauge("learner/loss", 8);
  actor.Count("actor/steps");
  EXPECT_EQ(MergeMetrics({learner.snapshot(), actor.snapshot()}).at("learner/loss").value, 8);
  EXPECT_TRUE(MergeMetrics({}).empty());
}

}  // namespace
}  // namespace troop
