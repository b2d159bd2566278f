#include "learners/supervised/text_evaluator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/learners/supervised_fixture.h"

namespace troop {
namespace {

using test::SupervisedConfig;
using test::SupervisedExpected;

// Reviews of the fixture: held out are those there, in the end judge all of them `copies` times.
std::shared_ptr<const ReviewData> Judging(const TrainingConfig& config, int copies,
                                          const std::vector<std::int64_t>& held_out) {
  auto loaded = LoadReviewData(config);
  EXPECT_TRUE(loaded.ok()) << loaded.status().ToString();
  auto data = std::make_shared<ReviewData>(**loaded);
  data->test = data->validation_split = TokenizedDataset();
  const auto add = [&](std::int64_t i, TokenizedDataset* to) { to->AddFrom(data->train, i); };
  for (int copy = 0; copy < copies; ++copy)
    for (std::int64_t i = 0; i < data->train.size(); ++i) add(i, &data->test);
  for (const std::int64_t i : held_out) add(i, &data->validation_split);
  return data;
}

std::vector<float> FixtureWeights(const TrainingConfig& config) {
  const auto algorithm = MakeSupervised(config);
  EXPECT_TRUE(algorithm.ok()) << algorithm.status().ToString();
  return {(*algorithm)->value().begin(), (*algorithm)->value().end()};
}

// By plain loops over what transformers said of each review.
struct Plain {
  Plain(const std::string& family, const TokenizedDataset& all,
        const std::vector<std::int64_t>& of) {
    const auto& rows = SupervisedExpected().Find(family)->Find("before")->array;
    for (const std::int64_t i : of) {
      const auto& row = rows[std::size_t(i)].array;
      const double negative = row[0].number, positive = row[1].number;
      const bool is_positive = all.labels[std::size_t(i)] == 1;
      right += (positive > negative) == is_positive;
      loss +=
          std::log(std::exp(negative) + std::exp(positive)) - (is_positive ? positive : negative);
      tokens += all.length(i);
    }
    accuracy = right / double(of.size());
    loss /= double(of.size());
    tokens /= double(of.size());
  }
  double right = 0, accuracy = 0, loss = 0, tokens = 0;
};

EvaluationReport Judge(const TrainingConfig& config, const std::shared_ptr<const ReviewData>& data,
                       const EvaluationRequest& options, std::span<const float> weights,
                       int* slices = nullptr) {
  auto trial = TextEvaluator::Make(config, data, options, weights);
  EXPECT_TRUE(trial.ok()) << trial.status().ToString();
  int made = 1;
  while ((*trial)->Advance(1) != Evaluator::State::kOver) {
    if (++made > 1000) ADD_FAILURE() << "the evaluation does not end";
  }
  EXPECT_TRUE((*trial)->error().ok()) << (*trial)->error().ToString();
  if (slices != nullptr) *slices = made;
  return (*trial)->Report();
}

void Expect(const EvaluationReport& report, const Plain& plain, std::int64_t reviews) {
  EXPECT_EQ(report.episodes, reviews);
  EXPECT_NEAR(report.return_mean, 100 * plain.accuracy, 1e-9);
  EXPECT_NEAR(report.return_std,
              100 * std::sqrt(plain.accuracy * (1 - plain.accuracy) / double(reviews)), 1e-9);
  EXPECT_LT(report.return_min, report.return_max) << "also of 0 or all of them";
  EXPECT_LE(report.return_min, report.return_mean);
  EXPECT_GE(report.return_max, report.return_mean);
  EXPECT_NEAR(report.loss, plain.loss, 1e-4);
  EXPECT_NEAR(report.length_mean, plain.tokens, 1e-9);
}

const std::vector<std::int64_t> kAll = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};

TEST(ReviewTrialTest, CountsCorrectReviewsAsReferenceDoes) {
  for (const char* const family : {"bert", "albert"}) {
    const TrainingConfig config = SupervisedConfig(family);
    const std::vector<std::int64_t> held = {1, 3, 4, 6};
    const auto data = Judging(config, 1, held);
    const std::vector<float> weights = FixtureWeights(config);
    const TokenizedDataset& all = data->train;
    Expect(Judge(config, data, {.episodes = 12, .version = 7, .final = true}, weights),
           Plain(family, all, kAll), 12);
    // More than there are.
    Expect(Judge(config, data, {.episodes = 99, .final = true}, weights), Plain(family, all, kAll),
           12);
    // Evenly spread.
    Expect(Judge(config, data, {.episodes = 5, .final = true}, weights),
           Plain(family, all, {0, 2, 4, 7, 9}), 5);
    // While training.
    const EvaluationReport report = Judge(config, data, {.episodes = 4, .version = 7}, weights);
    Expect(report, Plain(family, all, held), 4);
    EXPECT_EQ(report.weights_version, 7u);
  }
}

// A model that gave NaN for every text had an accuracy of 100 %.
TEST(ReviewTrialTest, RejectsWeightsThatGiveNaN) {
  for (const char* const family : {"bert", "albert"}) {
    const TrainingConfig config = SupervisedConfig(family);
    const auto data = Judging(config, 1, {0});
    std::vector<float> weights = FixtureWeights(config);
    std::ranges::fill(weights, NAN);
    auto trial =
        TextEvaluator::Make(config, data, {.episodes = 12, .version = 7, .final = true}, weights);
    ASSERT_TRUE(trial.ok()) << trial.status().ToString();
    while ((*trial)->Advance(1) != Evaluator::State::kOver) {
    }
    EXPECT_EQ((*trial)->error().code(), Code::kDataLoss) << family;
    EXPECT_NE((*trial)->error().message().find("version 7 give a non-finite loss"),
              std::string::npos)
        << (*trial)->error().message();
  }
}

TEST(ReviewTrialTest, EvaluatesManyReviewsInSlices) {
  const TrainingConfig config = SupervisedConfig("bert");
  const auto data = Judging(config, 100, {0});
  int slices = 0;
  const EvaluationReport report =
      Judge(config, data, {.episodes = 1200, .final = true}, FixtureWeights(config), &slices);
  Plain plain("bert", data->train, kAll);
  Expect(report, plain, 1200);
  EXPECT_EQ(slices, 4);  // of some 12,600 tokens
}

TEST(ReviewTrialTest, MaskedModelPredictsSameWordsEachTime) {
  TrainingConfig config = SupervisedConfig("bert");
  config.learner.algorithm = AlgorithmKind::kMaskedLm;
  config.model.pretrained = test::SupervisedFixture("masked");
  config.model.dropout = 0.5;  // which judging has none of
  const auto data = Judging(config, 4, {0});
  const std::vector<float> weights = FixtureWeights(config);
  const EvaluationRequest options{.episodes = 48, .final = true};
  const EvaluationReport one = Judge(config, data, options, weights);
  EXPECT_EQ(one, Judge(config, data, options, weights));
  EXPECT_GT(one.loss, 0.5);
  EXPECT_LT(one.return_mean, 100);
}

TEST(ReviewTrialTest, RejectsWeightsOfAnotherModel) {
  const TrainingConfig config = SupervisedConfig("bert");
  std::vector<float> weights = FixtureWeights(config);
  weights.pop_back();
  const auto refused = TextEvaluator::Make(config, Judging(config, 1, {0}), {}, weights);
  EXPECT_EQ(refused.status().code(), Code::kInvalidArgument);
}

// The confusion matrix counts the same reviews as the report; measures have the names of metrics.
TEST(ReviewTrialTest, MeasuresBelongToTheReport) {
  const TrainingConfig config = SupervisedConfig("bert");
  const auto data = Judging(config, 1, {1, 3, 4, 6});
  auto trial =
      TextEvaluator::Make(config, data, {.episodes = 12, .final = true}, FixtureWeights(config));
  ASSERT_TRUE(trial.ok());
  while ((*trial)->Advance(1) != Evaluator::State::kOver) {
  }
  const TextScores scores = (*trial)->Scores(100);
  const EvaluationReport report = (*trial)->Report();
  ASSERT_EQ(scores.examples, 12);
  EXPECT_NEAR(100 * scores.Find("accuracy")->value, report.return_mean, 1e-9);
  ASSERT_TRUE(scores.Find("accuracy")->interval);
  std::int64_t diagonal = 0, all = 0, positive = 0;
  for (std::size_t t = 0; t < 2; ++t) {
    for (std::size_t p = 0; p < 2; ++p) {
      all += scores.confusion[t][p];
      if (t == p) diagonal += scores.confusion[t][p];
      if (t == 1) positive += scores.confusion[t][p];
    }
  }
  EXPECT_EQ(all, 12);
  EXPECT_NEAR(double(diagonal) / 12, report.return_mean / 100, 1e-9);
  EXPECT_EQ(positive, std::ranges::count(data->test.labels, 1));
  const auto measures = (*trial)->Measures();
  ASSERT_EQ(measures.size(), 4u);
  EXPECT_EQ(measures[0].first, "accuracy");
  EXPECT_NEAR(measures[0].second, report.return_mean / 100, 1e-9);
}

}  // namespace
}  // namespace troop
