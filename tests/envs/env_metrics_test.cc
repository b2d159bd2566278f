#include "envs/env_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/base/philox.h"
#include "envs/subprocess/protocol.h"

namespace troop {
namespace {

using testing::HasSubstr;

// Parts of different sizes, as of actors with different numbers of steps.
TEST(EnvMetricsTest, MergedPartsMatchAllValues) {
  Rng rng({.run_seed = 3, .purpose = Purpose::kTest});
  std::vector<double> all;
  EnvMetrics merged;
  for (const int size : {1, 0, 400, 7}) {
    EnvMetrics part;
    for (int i = 0; i < size; ++i) {
      all.push_back(5 * rng.Normal() - double(size));
      part.Add("speed", all.back());
    }
    part.MoveTo(&merged);
    EXPECT_EQ(part.summaries().contains("speed"), size > 0);
  }
  double sum = 0;
  for (const double x : all) sum += x;
  const MetricSummary& got = merged.summaries().find("speed")->second;
  EXPECT_EQ(got.count, double(all.size()));
  EXPECT_NEAR(got.mean, sum / double(all.size()), 1e-9);
  EXPECT_EQ(got.min, *std::ranges::min_element(all));
  EXPECT_EQ(got.max, *std::ranges::max_element(all));
}

TEST(EnvMetricsTest, DropsInvalidNamesAndValues) {
  const auto problem = [](std::string_view name, double value) {
    EnvMetrics metrics;
    metrics.Add(name, value);
    EXPECT_TRUE(metrics.summaries().empty());
    return metrics.problem();
  };
  EXPECT_THAT(problem("", 1), HasSubstr("the metric name \"\" has 0 bytes"));
  EXPECT_THAT(problem("a b", 1), HasSubstr("letters, digits"));
  EXPECT_THAT(problem(std::string(65, 'x'), 1), HasSubstr("has 65 bytes; must have 1 to 64"));
  EXPECT_THAT(problem("speed", std::nan("")), HasSubstr("metric speed is nan, must be finite"));
  EXPECT_THAT(problem("speed", -HUGE_VAL), HasSubstr("metric speed is -inf"));
  EnvMetrics good;
  good.Add(std::string(64, 'x'), 1);
  good.Add("a/b-c_D9", 1);
  EXPECT_EQ(good.summaries().size(), 2u);
  EXPECT_EQ(good.problem(), "");
}

// Also over time: a name stays known after its values were taken.
TEST(EnvMetricsTest, KeepsBoundedNumberOfNames) {
  EnvMetrics metrics, taken;
  for (int i = 0; i < 32; ++i) metrics.Add("n" + std::to_string(i), i);
  EXPECT_EQ(metrics.problem(), "");
  metrics.MoveTo(&taken);
  metrics.Add("late", 1);
  metrics.Add("n31", 2);
  EXPECT_EQ(metrics.summaries().size(), 32u);
  EXPECT_EQ(metrics.summaries().find("n31")->second.count, 1);
  EXPECT_THAT(metrics.problem(), HasSubstr("metric late is the 33th name, at most 32 are kept"));
}

TEST(EnvMetricsTest, WorkerMessageRoundTrips) {
  EnvMetrics sent, read;
  sent.Add("a", 0.1);
  sent.Add("a", -7);
  sent.Add("b/c", 1e300);
  sent.Complain("odd");
  ASSERT_TRUE(worker::ParseMetricsMessage(worker::MetricsMessage(sent), &read).ok());
  EXPECT_TRUE(read.summaries() == sent.summaries());
  EXPECT_EQ(read.problem(), "odd");
  for (const char* bad :
       {"", "[]", R"({"metrics": []})", R"({"metrics": {"a": [1]}, "problem": ""})",
        R"({"metrics": {"a": [1, 2, "x", 4]}, "problem": ""})",
        R"({"metrics": {}, "problem": 1})"}) {
    EXPECT_FALSE(worker::ParseMetricsMessage(bad, &read).ok()) << bad;
  }
  // A worker is another program: its names are checked here, too.
  EXPECT_TRUE(
      worker::ParseMetricsMessage(R"({"metrics": {"a b": [1, 2, 2, 2]}, "problem": ""})", &read)
          .ok());
  EXPECT_EQ(read.summaries().size(), 2u);
}

}  // namespace
}  // namespace troop
