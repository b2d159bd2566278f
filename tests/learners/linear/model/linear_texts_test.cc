// Predictions of linear models for texts, against plain loops.
#include "learners/linear/model/linear_texts.h"

#include <gmock/gmock.h>

#include <cmath>
#include <fstream>

#include "learners/supervised/text_predictor.h"
#include "tests/core/temp_folder.h"

namespace troop {
namespace {

using testing::HasSubstr;

// Features "bad", "film" and "good"; the last weight is the bias.
LinearModelParts SmallModel() {
  const std::string_view texts[] = {"good film", "bad film"};
  LinearModelParts model{.labels = {"no", "yes"}, .weights = {-2, 0.25f, 1.5f, 0.125f}};
  model.vectorizer = *NgramVectorizer::Fit({}, texts);
  model.form = {.features = 3, .outputs = 1, .loss = LinearLoss::kLog};
  return model;
}

// The configs of checkpoints are not needed here.
Result<TrainingConfig> NoConfig(std::string_view, const std::string&) {
  return InvalidArgument("no config");
}

std::unique_ptr<TextPredictor> PredictorOf(const TempFolder& folder,
                                           const LinearModelParts& model) {
  const auto storage = MakeDiskStorage(folder.path());
  EXPECT_TRUE(WriteLinearModel(model, "", storage->get()).ok());
  auto predictor = TextPredictor::Load(folder.path(), NoConfig);
  EXPECT_TRUE(predictor.ok()) << predictor.status().ToString();
  return *std::move(predictor);
}

// Probabilities of the logistic loss: σ(z) of the second class. Unknown words are left out.
TEST(LinearTextsTest, ProbabilitiesAreThoseOfTheLogisticFunction) {
  const TempFolder folder;
  const auto predictor = PredictorOf(folder, SmallModel());
  EXPECT_TRUE(predictor->linear());
  EXPECT_FALSE(predictor->masked());
  const std::pair<const char*, double> cases[] = {
      {"Good good film", 1.5 * 2 + 0.25 + 0.125}, {"a BAD plot", -2 + 0.125}, {"unseen", 0.125}};
  for (const auto& [text, z] : cases) {
    const auto answer = predictor->Predict({text});
    ASSERT_TRUE(answer.ok()) << answer.status().ToString();
    ASSERT_EQ(answer->classes.size(), 2u);
    EXPECT_NEAR(answer->classes[1].probability, 1 / (1 + std::exp(-z)), 1e-6) << text;
    EXPECT_EQ(answer->best().name, z > 0 ? "yes" : "no");
  }
  EXPECT_TRUE(predictor->Predict({" \n"})->empty);
  EXPECT_EQ(predictor->Predict({"Good good film"})->tokens, 2);
  EXPECT_THAT(predictor->Predict({.text = "a", .pair = "b"}).status().message(),
              HasSubstr("trained on single texts"));
}

// Labels have a probability each, and a regression has the output itself.
TEST(LinearTextsTest, LabelsAndNumbersAreThoseOfTheOutputs) {
  const TempFolder folder, numbers;
  LinearModelParts model = SmallModel();
  model.problem = ProblemType::kMultiLabel;
  model.form.outputs = 2;
  model.weights = {1, -1, 0, 0, 2, 3, 0.5f, -0.5f};
  const auto answer = PredictorOf(folder, model)->Predict({"good bad"});
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  EXPECT_NEAR(answer->classes[0].probability, 1 / (1 + std::exp(-3.5)), 1e-6);
  EXPECT_NEAR(answer->classes[1].probability, 1 / (1 + std::exp(-1.5)), 1e-6);
  model = SmallModel();
  model.problem = ProblemType::kRegression;
  model.form.loss = LinearLoss::kSquaredError;
  model.labels.clear();
  EXPECT_NEAR(*PredictorOf(numbers, model)->Predict({"good film"})->value, 1.875, 1e-6);
}

// Such a model has no n-grams, so that texts have no features.
TEST(LinearTextsTest, ModelOfSvmlightFilesReadsNoTexts) {
  LinearModelParts model = SmallModel();
  model.vectorizer.reset();
  EXPECT_THAT(LinearTexts::Make(model).status().message(), HasSubstr("svmlight"));
}

}  // namespace
}  // namespace troop
