#include "apps/experiments/imdb_parallel_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/storage/json.h"
#include "tests/fleet/supervised_run_config.h"

namespace troop {
namespace {

using ::testing::HasSubstr;
using Winner = ParallelVerdict::Winner;

// BERT of 47 words, 24 positions, 32 numbers, 2 layers, 48 inner numbers: its parameters by hand.
// The classifier's bias of two lies in 16, as every vector does.
constexpr double kEmbeddings = (47 + 24 + 2) * 32 + 2 * 32;
constexpr double kLayer = 4 * (32 * 32 + 32) + (32 * 48 + 48) + (48 * 32 + 32) + 4 * 32;
constexpr double kHead = (32 * 32 + 32) + (2 * 32 + 16);
constexpr double kParameters = kEmbeddings + 2 * kLayer + kHead;

Config Meshed(std::int64_t dp, std::int64_t tp) {
  Config config = test::SupervisedRunConfig("bert");
  config.fleet.learners = dp * tp;
  config.mesh = {.dp = dp, .tp = tp};
  return config;
}

// 20 updates of 100 tokens in 12 reviews by two learners, each with 4 s of work and 1 s of waiting.
std::string Line(const std::string& more) {
  return R"({"wall_s": 9, "learner/updates": 20, "learner/tokens": 2000,
    "learner/sequences": 240, "learner/compute_s": 7,
    "learner/step_s": 0.8, "learner/data_s": 0.2)" +
         more + "}";
}

TEST(ParallelResultsTest, DataParallelRunSendsGradients) {
  const auto run = ReadParallelRun(
      Meshed(2, 1), Line(R"(, "learner/allreduce_wait_s": 2, "learner/gradient_bytes": 2.8e6)"));
  ASSERT_TRUE(run.ok()) << run.status().ToString();
  EXPECT_EQ(run->updates, 20);
  EXPECT_EQ(run->tokens, 100);
  EXPECT_DOUBLE_EQ(run->step_s, 0.25);
  EXPECT_DOUBLE_EQ(run->wait_s, 0.05);
  EXPECT_DOUBLE_EQ(run->sent_bytes, 70e3);  // 2.8e6 / 20 / 2
  EXPECT_DOUBLE_EQ(run->expected_bytes, 4 * kParameters);
  EXPECT_DOUBLE_EQ(run->parameter_bytes, 4 * kParameters);
}

TEST(ParallelResultsTest, TensorParallelRunSendsActivations) {
  const auto run = ReadParallelRun(Meshed(1, 2),
                                   Line(R"(, "learner/tensor_s": 2, "learner/tensor_bytes": 4e6)"));
  ASSERT_TRUE(run.ok()) << run.status().ToString();
  EXPECT_DOUBLE_EQ(run->step_s, 0.25);
  EXPECT_DOUBLE_EQ(run->wait_s, 0.05);
  EXPECT_DOUBLE_EQ(run->sent_bytes, 100e3);
  // Activations exchanged: of [100, 32], four in the first layer, one in the last layer and one
  // after the embeddings; the last layer's other three have 12 rows.
  EXPECT_DOUBLE_EQ(run->expected_bytes, 4.0 * (6 * 100 + 3 * 12) * 32);
  EXPECT_LT(run->parameter_bytes, 4 * kParameters);
}

// 2,010 tokens of 230 reviews in 20 updates: half a token was left out of the formula, and the last
// batch of an epoch counted as whole.
TEST(ParallelResultsTest, AccountsForUpdatesOfDifferentLengths) {
  std::string line = Line(R"(, "learner/tensor_s": 2, "learner/tensor_bytes": 4e6)");
  line.replace(line.find("2000"), 4, "2010");
  line.replace(line.find("240"), 3, "230");
  const auto run = ReadParallelRun(Meshed(1, 2), line);
  ASSERT_TRUE(run.ok());
  EXPECT_DOUBLE_EQ(run->expected_bytes, 4.0 * (6 * 100.5 + 3 * 11.5) * 32);
}

TEST(ParallelResultsTest, AccountsForRingTrafficOfManyLearners) {
  const auto run = ReadParallelRun(
      Meshed(4, 1), Line(R"(, "learner/allreduce_wait_s": 2, "learner/gradient_bytes": 2.8e6)"));
  ASSERT_TRUE(run.ok());
  EXPECT_DOUBLE_EQ(run->sent_bytes, 1.5 * 35e3);
  EXPECT_DOUBLE_EQ(run->expected_bytes, 1.5 * 4 * kParameters);
}

TEST(ParallelResultsTest, ReturnsDataLossForRunWithoutUpdates) {
  for (const char* const line : {"", "{", "{}", R"({"learner/updates": 0, "learner/tokens": 5})",
                                 R"({"learner/updates": 5})"}) {
    EXPECT_EQ(ReadParallelRun(Meshed(2, 1), line).status().code(), Code::kDataLoss) << line;
  }
}

ParallelCell Cell(std::vector<double> steps, double bytes) {
  ParallelCell cell;
  for (const double step : steps) {
    cell.runs.push_back({.updates = 10,
                         .tokens = 200,
                         .step_s = step,
                         .wait_s = step / 4,
                         .sent_bytes = bytes,
                         .expected_bytes = bytes,
                         .parameter_bytes = 8e6});
  }
  return cell;
}

TEST(ParallelResultsTest, ComputesMedianAndExtremes) {
  const ParallelCell odd = Cell({3, 1, 2}, 1), even = Cell({4, 1, 2, 3}, 1);
  EXPECT_EQ(odd.Median(&ParallelRun::step_s), 2);
  EXPECT_EQ(even.Median(&ParallelRun::step_s), 2.5);
  EXPECT_EQ(even.Fastest(), 1);
  EXPECT_EQ(even.Slowest(), 4);
}

TEST(ParallelResultsTest, ExpectsFewerBytesAndMeasuresFasterRepeats) {
  const ParallelModel data{ModelArchitecture::kBert, Cell({0.1, 0.2}, 10e6),
                           Cell({0.3, 0.4}, 20e6)};
  const ParallelVerdict verdict = JudgeParallel(data);
  EXPECT_EQ(verdict.expected, Winner::kData);
  EXPECT_EQ(verdict.measured, Winner::kData);
  EXPECT_TRUE(verdict.held());
  EXPECT_DOUBLE_EQ(verdict.even_tokens, 100);  // half the bytes of 200 tokens
  const ParallelModel tensor{ModelArchitecture::kBert, Cell({0.3, 0.4}, 20e6),
                             Cell({0.1, 0.2}, 10e6)};
  EXPECT_EQ(JudgeParallel(tensor).expected, Winner::kTensor);
  EXPECT_EQ(JudgeParallel(tensor).measured, Winner::kTensor);
  EXPECT_DOUBLE_EQ(JudgeParallel(tensor).even_tokens, 400);
  const ParallelModel otherwise{ModelArchitecture::kBert, Cell({0.3, 0.4}, 10e6),
                                Cell({0.1, 0.2}, 20e6)};
  EXPECT_FALSE(JudgeParallel(otherwise).held());
}

TEST(ParallelResultsTest, OverlappingRepeatsHaveNoWinner) {
  const ParallelModel model{ModelArchitecture::kBert, Cell({0.1, 0.3}, 10e6),
                            Cell({0.29, 0.5}, 20e6)};
  EXPECT_EQ(JudgeParallel(model).measured, Winner::kNeither);
  EXPECT_FALSE(JudgeParallel(model).held());
}

std::vector<ParallelModel> Both() {
  return {{ModelArchitecture::kBert, Cell({0.1, 0.12}, 10e6), Cell({0.3}, 20e6)},
          {ModelArchitecture::kAlbert, Cell({0.4}, 4e6), Cell({0.2}, 20e6)}};
}

TEST(ParallelResultsTest, ReportHasTableAndVerdicts) {
  const std::string report =
      ParallelReport({.link_bits_per_s = 1e9, .machine = "a processor", .load = 3}, Both());
  EXPECT_THAT(report, HasSubstr("2 learners on links of 1000 Mbit/s"));
  EXPECT_THAT(report, HasSubstr("(a busy machine"));
  EXPECT_THAT(report, HasSubstr("| BERT | 110.0 | 300.0 | 2.73 | 556 s, 392 s: 0.71 |\n"));
  EXPECT_THAT(report, HasSubstr("| ALBERT | 400.0 | 200.0 | 0.50 | 264 s, 200 s: 0.76 |\n"));
  EXPECT_THAT(report, HasSubstr("| BERT | data | 110.0 (100.0 to 120.0) | 1818 | 10.000 | 10.000 "
                                "| 25 % | 8.000 |\n"));
  EXPECT_THAT(report, HasSubstr("they are equal at 100 tokens. By the bytes data parallel should "
                                "win; it did (100.0 to 120.0 ms against 300.0 to 300.0 ms"));
  EXPECT_THAT(report, HasSubstr("they are equal at 40 tokens. By the bytes data parallel should "
                                "win; it did not (400.0"));
}

TEST(ParallelResultsTest, JsonMatchesReport) {
  const auto json = ParseJson(ParallelJson({.machine = "a \"processor\""}, Both()));
  ASSERT_TRUE(json.ok()) << json.status().ToString();
  EXPECT_EQ(*json->String("machine"), "a \"processor\"");
  const JsonValue& cells = *json->Find("cells");
  ASSERT_EQ(cells.array.size(), 4u);
  EXPECT_EQ(*cells.array[3].String("model"), "albert");
  EXPECT_EQ(*cells.array[3].String("parallel"), "tensor");
  EXPECT_DOUBLE_EQ(cells.array[0].Find("step_s_median")->number, 0.11);
  EXPECT_EQ(cells.array[0].Find("step_s")->array.size(), 2u);
  const JsonValue& verdicts = *json->Find("verdicts");
  ASSERT_EQ(verdicts.array.size(), 2u);
  EXPECT_TRUE(verdicts.array[0].Find("held")->boolean);
  EXPECT_EQ(*verdicts.array[1].String("measured"), "tensor parallel");
}

}  // namespace
}  // namespace troop
