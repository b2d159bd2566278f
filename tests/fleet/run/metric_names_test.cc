// Metrics of runs that an earlier version recorded.
#include "fleet/run/metric_names.h"

#include <gtest/gtest.h>

#include <fstream>

#include "fleet/run/metrics_reader.h"

namespace troop {
namespace {

const std::string kRuns = TROOP_SOURCE_DIR "/tests/fixtures/runs_v1/";

// The values of the recorded lines, read without the table of names.
TEST(MetricNamesTest, RecordedLinesKeepTheirValuesUnderCurrentNames) {
  std::ifstream file(kRuns + "interrupted/metrics.jsonl");
  std::string line;
  int lines = 0;
  for (; std::getline(file, line); ++lines) {
    const auto before = ParseJson(line), after = ParseMetricsLine(line);
    ASSERT_TRUE(before.ok() && after.ok()) << line;
    EXPECT_EQ(after->object.size(), before->object.size());
    EXPECT_EQ(NumberOf(*after, "learner/q_mean", -1), NumberOf(*before, "learner/q", -1));
    EXPECT_EQ(NumberOf(*after, "episode_return_mean", -1), NumberOf(*before, "train_return", -1));
    EXPECT_EQ(NumberOf(*after, "actor/nonfinite_values", -1),
              NumberOf(*before, "actor/bad_numbers", -1));
    EXPECT_EQ(NumberOf(*after, "learner/loss", -1), NumberOf(*before, "learner/loss", -1));
    EXPECT_EQ(after->Find("learner/q"), nullptr);
    const auto text = ParseJson(CurrentMetricsLine(line));
    ASSERT_TRUE(text.ok());
    EXPECT_EQ(text->object.size(), after->object.size());
    for (const auto& [name, value] : after->object) EXPECT_NE(text->Find(name), nullptr) << name;
  }
  EXPECT_GT(lines, 4);
}

TEST(MetricNamesTest, ReaderOfRecordedRunHasCurrentNames) {
  MetricsReader reader(kRuns + "interrupted/metrics.jsonl");
  ASSERT_TRUE(reader.Update().ok());
  for (const char* name : {"learner/q_mean", "learner/td_error_mean", "episode_return_mean",
                           "replay/waiting_inserts", "paramserver/publishes_rejected_old"}) {
    EXPECT_TRUE(reader.Has(name)) << name;
  }
  for (const std::string& name : reader.names()) EXPECT_EQ(CurrentMetricName(name), name);
}

TEST(MetricNamesTest, OtherNamesAreUnchanged) {
  EXPECT_EQ(CurrentMetricName("learner/loss"), "learner/loss");
  EXPECT_EQ(CurrentMetricName("learner/q"), "learner/q_mean");
  EXPECT_EQ(CurrentMetricName(""), "");
  EXPECT_EQ(CurrentMetricName("/"), "/");
  EXPECT_EQ(CurrentMetricName("replay/second/repeated"), "replay/second/duplicate_items");
  EXPECT_EQ(CurrentMetricName("replay/second/inserts"), "replay/second/inserts");
  EXPECT_EQ(CurrentMetricsLine(R"({"phase": "learner/q", "replay/a/rejected": 1, "x)"),
            R"({"phase": "learner/q", "replay/a/rejected_items": 1, "x)");
  EXPECT_FALSE(ParseMetricsLine("{\"a\": ").ok());
}

}  // namespace
}  // namespace troop
