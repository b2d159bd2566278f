// Evaluation of linear models, against plain loops.
#include "learners/linear/linear_evaluator.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "core/base/philox.h"
#include "nn/arena.h"

namespace troop {
namespace {

constexpr std::int64_t kFeatures = 4, kExamples = 2500;

// A set of one entry per row, the last one 2 in its column, with labels that follow it mostly.
LinearSet RandomSet(std::int64_t classes, std::int64_t examples, std::uint64_t seed) {
  LinearSet set;
  set.rows.width = kFeatures;
  Rng rng({seed, Purpose::kHoldout, 0, 0});
  for (std::int64_t i = 0; i < examples; ++i) {
    set.rows.columns.push_back(std::int32_t(rng.Below(kFeatures)));
    set.rows.values.push_back(2);
    set.rows.EndRow();
    const bool follows = rng.Uniform() < 0.7;
    set.labels.push_back(follows ? set.rows.columns.back() % std::int32_t(classes)
                                 : std::int32_t(rng.Below(std::uint32_t(classes))));
  }
  return set;
}

// Sets of unequal sizes, so that a mistaken set is noticed.
std::shared_ptr<LinearData> RandomData(std::int64_t classes) {
  auto data = std::make_shared<LinearData>();
  data->train = RandomSet(classes, 3, 1);
  data->validation_split = RandomSet(classes, 40, 2);
  data->test = RandomSet(classes, kExamples, 3);
  for (std::int64_t k = 0; k < classes; ++k) data->names.push_back(std::to_string(k));
  return data;
}

// Small weights: both signs of the outputs are frequent.
std::vector<float> RandomWeights(std::int64_t outputs) {
  std::vector<float> weights;
  Rng rng({9, Purpose::kHoldout, 0, 0});
  for (std::int64_t i = 0; i < AlignParams((kFeatures + 1) * outputs); ++i)
    weights.push_back(float(rng.Uniform() - 0.5));
  return weights;
}

// Runs the trial, and returns the number of its slices.
int SlicesOf(LinearEvaluator* trial) {
  int slices = 1;
  while (trial->Advance(1) == Evaluator::State::kBusy) ++slices;
  return slices;
}

// Both sets, with one output and with several.
TEST(LinearEvaluatorTest, AccuracyAndLossAreThoseOfPlainLoops) {
  for (const std::int64_t classes : {2, 3}) {
    const auto data = RandomData(classes);
    const std::int64_t outputs = classes == 2 ? 1 : classes;
    const std::vector<float> weights = RandomWeights(outputs);
    for (const bool final : {false, true}) {
      const LinearSet& set = final ? data->test : data->validation_split;
      auto trial =
          LinearEvaluator::Make({}, LinearLoss::kSquaredHinge, data,
                                {.episodes = kExamples, .version = 7, .final = final}, weights);
      ASSERT_TRUE(trial.ok()) << trial.status().ToString();
      EXPECT_EQ(SlicesOf(trial->get()), final ? 3 : 1);
      double loss = 0, right = 0;
      for (std::size_t i = 0; i < set.labels.size(); ++i) {
        // The value of each entry is 2.
        std::vector<double> z;
        for (std::size_t k = 0; k < std::size_t(outputs); ++k) {
          const auto at = std::size_t(set.rows.columns[i]) * std::size_t(outputs) + k;
          z.push_back(2 * double(weights[at]) +
                      double(weights[kFeatures * std::size_t(outputs) + k]));
          const std::int32_t mine = outputs == 1 ? 1 : std::int32_t(k);
          const double y = set.labels[i] == mine ? 1 : -1;
          loss += std::pow(std::max(0.0, 1 - y * z.back()), 2);
        }
        const auto best =
            outputs == 1 ? (z[0] > 0 ? 1 : 0) : std::ranges::max_element(z) - z.begin();
        right += best == set.labels[i] ? 1 : 0;
      }
      const EvaluationReport report = (*trial)->Report();
      const double n = double(set.labels.size());
      EXPECT_NEAR(report.return_mean, 100 * right / n, 1e-9);
      EXPECT_NEAR(report.loss, loss / n, 1e-9);
      EXPECT_EQ(report.episodes, std::int64_t(n));
      EXPECT_EQ(report.weights_version, 7u);
      EXPECT_NEAR((*trial)->Scores(0).Find("accuracy")->value, right / n, 1e-9);
      EXPECT_EQ((*trial)->Measures().front().first, "accuracy");
    }
  }
}

// A part of the set is spread over it.
TEST(LinearEvaluatorTest, SubsetIsAsLargeAsRequested) {
  const auto data = RandomData(2);
  auto trial =
      LinearEvaluator::Make({}, LinearLoss::kLog, data, {.episodes = 10}, RandomWeights(1));
  ASSERT_TRUE(trial.ok());
  SlicesOf(trial->get());
  EXPECT_EQ((*trial)->Report().episodes, 10);
}

// One NaN that an example uses, and a missing value.
TEST(LinearEvaluatorTest, DamagedWeightsAreNamed) {
  const auto data = RandomData(2);
  std::vector<float> weights = RandomWeights(1);
  weights[kFeatures] = std::numeric_limits<float>::quiet_NaN();
  auto trial = LinearEvaluator::Make({}, LinearLoss::kLog, data, {.version = 3}, weights);
  ASSERT_TRUE(trial.ok());
  SlicesOf(trial->get());
  EXPECT_EQ((*trial)->error().code(), Code::kDataLoss);
  weights.pop_back();
  EXPECT_EQ(LinearEvaluator::Make({}, LinearLoss::kLog, data, {}, weights).status().code(),
            Code::kInvalidArgument);
}

}  // namespace
}  // namespace troop
