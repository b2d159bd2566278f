#include "apps/planner/training_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troop {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Config Two() {
  Config config;
  config.fleet.learners = 2;
  config.mesh = {.dp = 2, .tp = 1};
  return config;
}

// 100 updates of two learners: 40 + 6 + 2 + 2 seconds of each.
RunView View() {
  RunView view;
  const auto put = [&view](const char* name, double value) {
    view.metrics[std::string("learner/") + name] = {.value = value};
  };
  put("updates", 100);
  put("gradients", 200);
  put("tokens", 50000);
  put("sequences", 800);
  put("compute_s", 80);
  put("allreduce_wait_s", 12);
  put("allreduce_s", 48);
  put("step_s", 4);
  put("data_s", 4);
  put("flops", 8e11);
  put("gradient_bytes", 200 * 4e6);
  return view;
}

TEST(LearningReportTest, ReportsTimeBreakdown) {
  const std::string report = LearningReport(Two(), View(), {20e9, "one thread"}, nullptr);
  EXPECT_THAT(report, HasSubstr("800 examples, 5e+04 tokens in 100 updates; 2 learners (2 x 1"));
  EXPECT_THAT(report, HasSubstr("| compute: forward, loss, backward | 40.0 | 80.0 % |\n"));
  EXPECT_THAT(report, HasSubstr("| wait for gradient sync | 6.0 | 12.0 % |\n"));
  EXPECT_THAT(report, HasSubstr("| total | 50.0 | |\n"));
  EXPECT_THAT(report, HasSubstr("1000 tokens/s"));
  EXPECT_THAT(report, HasSubstr("8.0 GFLOP/s per learner (40 % of the peak), 10.0 while computing "
                                "(50 %); the peak is 20.0 on one thread"));
  EXPECT_THAT(report, HasSubstr("| all-reduce of gradients | 4.0 MB | 24.0 | 75 % |\n"));
  EXPECT_THAT(report, Not(HasSubstr("all-reduces of tensor parallelism")));
  EXPECT_THAT(report, Not(HasSubstr("planned")));
}

TEST(LearningReportTest, ReportsTensorParallelWait) {
  RunView view = View();
  view.metrics.erase("learner/gradient_bytes");
  view.metrics["learner/tensor_bytes"].value = 200 * 12e3;
  view.metrics["learner/tensor_s"].value = 10;
  const std::string report = LearningReport(Two(), view, {20e9, "one thread"}, nullptr);
  EXPECT_THAT(report, HasSubstr("| all-reduces of tensor parallelism | 12.0 kB | 5.0 | 0 % |\n"));
  EXPECT_THAT(report, Not(HasSubstr("all-reduce of gradients")));
}

TEST(LearningReportTest, ReportsParameterShardTraffic) {
  Config config = Two();
  config.learner.sync = LearnerSync::kParamServer;
  RunView view = View();
  view.metrics["learner/weights_bytes"].value = 200 * 8e6;
  view.metrics["learner/weights_s"].value = 10;
  const std::string report = LearningReport(config, view, {20e9, "one thread"}, nullptr);
  // The learners waited 12 s, of which 10 s were for weights.
  EXPECT_THAT(report, HasSubstr("| gradients to the parameter shards | 4.0 MB | 24.0 | 96 % |\n"));
  EXPECT_THAT(report, HasSubstr("| weights from the parameter shards | 8.0 MB | 5.0 | 0 % |\n"));
}

TEST(LearningReportTest, SingleLearnerReportsNoTraffic) {
  RunView view = View();
  view.metrics.erase("learner/gradient_bytes");
  EXPECT_THAT(LearningReport(Two(), view, {20e9, "one thread"}, nullptr),
              Not(HasSubstr("overlapped")));
}

TEST(LearningReportTest, ReportsPlannedTimes) {
  const MeshPlan plan{.dp = 2, .compute_s = 0.3, .gradient_s = 0.05, .step_s = 0.03};
  const std::string report = LearningReport(Two(), View(), {20e9, "one thread"}, &plan);
  EXPECT_THAT(report, HasSubstr("| 40.0 | 80.0 % | 30.0 |\n"));
  EXPECT_THAT(report, HasSubstr("| 6.0 | 12.0 % | 5.0 |\n"));
  EXPECT_THAT(report, HasSubstr("| total | 50.0 | | 38.0 |\n"));
  EXPECT_THAT(report, HasSubstr("a batch took 500.0 ms, planned 380.0"));
}

TEST(LearningReportTest, SkipsPlanForFewUpdates) {
  RunView view = View();
  EXPECT_TRUE(IsWorthAPlan(Two(), view));
  view.metrics["learner/gradients"].value = 14;  // of two learners
  EXPECT_FALSE(IsWorthAPlan(Two(), view));
}

// Counters cover only the part of the run since the resume, and so do the divisors.
TEST(LearningReportTest, ResumedRunReportsOnlyItsPart) {
  RunView view = View();
  view.metrics["learner/updates"].value = 1100;
  view.updates_at_start = 1000;
  const MeshPlan plan{.dp = 2, .compute_s = 0.3};
  const std::string report = LearningReport(Two(), view, {20e9, "one thread"}, &plan);
  EXPECT_THAT(report,
              HasSubstr("5e+04 tokens in 100 updates after 1000 before the resume; 2 learners"));
  EXPECT_THAT(report, HasSubstr("a batch took 500.0 ms, planned 300.0"));
  EXPECT_THAT(report, HasSubstr("| all-reduce of gradients | 4.0 MB | 24.0 | 75 % |\n"));
}

// With a parameter server each push may count as an update.
TEST(LearningReportTest, ReportsBatchTimePerBatchNotPerUpdate) {
  Config config = Two();
  config.learner.sync = LearnerSync::kParamServer;
  RunView view = View();
  view.metrics["learner/updates"].value = 200;
  const MeshPlan plan{.dp = 2, .compute_s = 0.3};
  const std::string report = LearningReport(config, view, {20e9, "one thread"}, &plan);
  EXPECT_THAT(report, HasSubstr("5e+04 tokens in 200 updates; 2 learners"));
  EXPECT_THAT(report, HasSubstr("a batch took 500.0 ms, planned 300.0"));
  EXPECT_THAT(report, HasSubstr("| gradients to the parameter shards | 4.0 MB |"));
}

TEST(LearningReportTest, ReportIsEmptyWithoutUpdates) {
  EXPECT_EQ(LearningReport(Two(), RunView(), {1, "one thread"}, nullptr), "");
}

// Means over the measured runs, and shares of their summed times.
TEST(LearningReportTest, ReportsStagesOfPipelines) {
  Config config;
  config.mesh = {.dp = 1, .pp = 2};
  RunView view;
  EXPECT_EQ(PipelineReport(config, view), "");
  const auto put = [&view](const char* name, double value) {
    view.metrics[std::string("learner/") + name] = {.value = value};
  };
  for (const auto& [name, value] : {std::pair("stage0_runs", 4.0),
                                    {"stage0_s", 2.0},
                                    {"stage0_idle_s", 0.5},
                                    {"stage0_bytes", 8e6},
                                    {"stage0_planned_s", 1.6},
                                    {"stage0_planned_idle_s", 0.32},
                                    {"stage0_planned_bytes", 12e6},
                                    {"stage1_runs", 2.0},
                                    {"stage1_s", 1.0},
                                    {"stage1_idle_s", 0.1}})
    put(name, value);
  const std::string report = PipelineReport(config, view);
  EXPECT_THAT(report, HasSubstr("| 0 | 25.0 % | 20.0 % | 2.0 MB | 3.0 MB |\n"));
  EXPECT_THAT(report, HasSubstr("| 1 | 10.0 % | "));
  EXPECT_THAT(report, HasSubstr("1 x 2 stages (mesh.dp x mesh.pp), schedule 1f1b: passes of an "
                                "update took 500.0 ms, predicted 400.0 ms"));
}

}  // namespace
}  // namespace troop
