#include "fleet/coordinator/run_results.h"

#include <gtest/gtest.h>

namespace troop {
namespace {

TEST(RunResultsTest, EvaluationCountsOnce) {
  RunResults results("", 0);
  EXPECT_EQ(results.last_evaluation(), nullptr);
  const EvaluationReport evaluation{.steps = 10, .episodes = 3, .return_mean = 1.5};
  EXPECT_TRUE(results.AddEvaluation(evaluation));
  EXPECT_FALSE(results.AddEvaluation(evaluation));
  ASSERT_NE(results.last_evaluation(), nullptr);
  EXPECT_EQ(results.last_evaluation()->return_mean, 1.5);
}

// Regression: an undefined measure is not equal to itself, so a repeated heartbeat had its
// evaluation counted twice.
TEST(RunResultsTest, EvaluationWithUndefinedMeasuresCountsOnce) {
  RunResults results("", 0);
  EvaluationReport evaluation{.steps = 10, .episodes = 3};
  evaluation.measures = {{.name = "auc", .value = kUndefined}};
  evaluation.classes = {{.support = 3}};
  EXPECT_TRUE(results.AddEvaluation(evaluation));
  EXPECT_FALSE(results.AddEvaluation(evaluation));
  evaluation.measures[0].value = 0.5;
  EXPECT_TRUE(results.AddEvaluation(evaluation));
}

TEST(RunResultsTest, StartsFromResumedCheckpoint) {
  RunResults results("checkpoints/7", 7);
  RunView view;
  results.Fill(&view);
  EXPECT_EQ(view.checkpoint, "checkpoints/7");
  EXPECT_EQ(view.checkpoint_updates, 7u);
  EXPECT_EQ(view.updates, 7u);
  EXPECT_EQ(results.retired_counters().at("learner/updates").value, 7);
}

TEST(RunResultsTest, HeartbeatWithoutCheckpointKeepsTheLast) {
  RunResults results("", 0);
  results.RecordCheckpoint(
      {.checkpoint = "checkpoints/9", .checkpoint_updates = 9, .checkpoint_final = true});
  results.RecordCheckpoint({});
  results.RecordUpdates(5);
  results.RecordUpdates(-1);  // no learner has reported
  RunView view;
  results.Fill(&view);
  EXPECT_EQ(results.checkpoint(), "checkpoints/9");
  EXPECT_EQ(view.updates, 9u);  // a final checkpoint has the last update
}

TEST(RunResultsTest, RetiredGaugesAreDropped) {
  RunResults results("", 0);
  MetricSnapshot metrics;
  metrics["actor/episodes"] = {.kind = MetricKind::kCounter, .value = 4};
  metrics["actor/epsilon"] = {.kind = MetricKind::kGaugeMean, .value = 0.5};
  results.RetireMetrics(metrics);
  results.RetireMetrics(metrics);
  EXPECT_EQ(results.retired_counters().at("actor/episodes").value, 8);
  EXPECT_FALSE(results.retired_counters().contains("actor/epsilon"));
}

TEST(RunResultsTest, CountsEvaluationsSinceTheBest) {
  RunResults results("", 0);
  const auto add = [&](std::uint64_t version, double mean, bool final = false) {
    results.AddEvaluation({.weights_version = version, .return_mean = mean, .final = final});
    return results.evaluations_since_best();
  };
  EXPECT_EQ(results.evaluations_since_best(), 0);
  EXPECT_EQ(add(1, -3), 0);
  EXPECT_EQ(add(2, -3), 1) << "an equal one is not better";
  EXPECT_EQ(add(2, -3), 1) << "a repeated report counts once";
  EXPECT_EQ(add(3, -4), 2);
  EXPECT_EQ(add(4, -2), 0);
  EXPECT_EQ(add(5, -2.5), 1);
  EXPECT_EQ(add(6, 9, true), 1) << "the final one is on other examples";
  EXPECT_EQ(add(7, -2.4), 2);
}

}  // namespace
}  // namespace troop
