// Evaluation and prediction with weights whose logits are known: all but the last bias are zero.
#include "learners/images/image_evaluator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/graphics/png.h"
#include "learners/images/image_predictor.h"
#include "nn/models/model.h"
#include "nn/models/text_model.h"
#include "tests/learners/images/image_fixture.h"

namespace troop {
namespace {

using test::ImageConfig;
using test::kClasses;
using test::RandomImages;
using testing::HasSubstr;

// Logits of every image: 0, -1, -2, …
std::vector<float> FallingLogits(const TrainingConfig& config) {
  const auto module = *MakeTextModel(ModelSetupOf(config));
  std::vector<float> value(std::size_t(ParameterCount(*module)));
  for (const ParamSpec& spec : module->params()) {
    if (spec.name != "fc.bias") continue;
    for (std::int64_t i = 0; i < kClasses; ++i) value[std::size_t(spec.offset + i)] = -float(i);
  }
  return value;
}

double Sum() {
  double sum = 0;
  for (std::int64_t i = 0; i < kClasses; ++i) sum += std::exp(-double(i));
  return sum;
}

double Measure(const ImageEvaluator& trial, const std::string& name) {
  for (const auto& [key, value] : trial.Measures())
    if (key == name) return value;
  return -1;
}

// Six classes: only class 0 is right and only class 5 is not among the first five.
TEST(ImageEvaluatorTest, CountsFirstAndFirstFiveClasses) {
  const TrainingConfig config = ImageConfig();
  auto trial =
      ImageEvaluator::Make(config, RandomImages(24, 12),
                           {.episodes = 100, .version = 7, .final = true}, FallingLogits(config));
  ASSERT_TRUE(trial.ok()) << trial.status().ToString();
  while ((*trial)->Advance(1) != Evaluator::State::kOver) {
  }
  ASSERT_TRUE((*trial)->error().ok()) << (*trial)->error().ToString();
  const EvaluationReport report = (*trial)->Report();
  EXPECT_EQ(report.episodes, 12);
  EXPECT_EQ(report.weights_version, 7u);
  EXPECT_NEAR(report.return_mean, 100.0 / 6, 1e-9);
  EXPECT_NEAR((*trial)->top5(), 5.0 / 6, 1e-9);
  EXPECT_NEAR(Measure(**trial, "accuracy"), 1.0 / 6, 1e-9);
  EXPECT_NEAR(Measure(**trial, "top5_accuracy"), 5.0 / 6, 1e-9);
  // Each class twice: the mean of log Σ exp + label.
  EXPECT_NEAR(report.loss, std::log(Sum()) + 2.5, 1e-5);
  EXPECT_EQ((*trial)->Scores(0).confusion[3][0], 2);
  // Wilson's interval of 10 of 12, by scipy's binomtest(10, 12).proportion_ci(method="wilson").
  EvaluationReport final = report;
  final.measures = {{.name = "accuracy", .value = 1.0 / 6},
                    {.name = "top5_accuracy", .value = 5.0 / 6}};
  (*trial)->AddDetails(&final);
  EXPECT_NEAR(final.measures[1].low, 0.551969, 1e-5);
  EXPECT_NEAR(final.measures[1].high, 0.953035, 1e-5);
  EXPECT_LT(final.measures[0].low, 1.0 / 6);
  EXPECT_EQ(final.confusion[3 * 6], 2);
}

// Every second of 12 images: the classes 0, 2 and 4 in turn.
TEST(ImageEvaluatorTest, SubsetIsSpreadEvenly) {
  const TrainingConfig config = ImageConfig();
  const auto trial =
      ImageEvaluator::Make(config, RandomImages(24, 12), {.episodes = 6}, FallingLogits(config));
  ASSERT_TRUE(trial.ok()) << trial.status().ToString();
  while ((*trial)->Advance(1) != Evaluator::State::kOver) {
  }
  EXPECT_EQ((*trial)->judged(), 6);
  EXPECT_NEAR((*trial)->Report().loss, std::log(Sum()) + 2, 1e-5);
}

TEST(ImageEvaluatorTest, BadWeightsAreErrors) {
  const TrainingConfig config = ImageConfig();
  std::vector<float> value = FallingLogits(config);
  const std::vector<float> few(value.begin() + 1, value.end());
  EXPECT_THAT(ImageEvaluator::Make(config, RandomImages(24, 12), {}, few).status().message(),
              HasSubstr("parameters"));
  for (float& x : value) x = NAN;
  const auto trial = ImageEvaluator::Make(config, RandomImages(24, 12), {.episodes = 6}, value);
  ASSERT_TRUE(trial.ok());
  EXPECT_EQ((*trial)->Advance(1), Evaluator::State::kOver);
  EXPECT_EQ((*trial)->error().code(), Code::kDataLoss);
}

std::string Png(std::int64_t width, std::int64_t height) {
  const Picture picture{int(width), int(height),
                        std::vector<std::uint8_t>(std::size_t(width * height * 3), 100)};
  const Buffer bytes = EncodePng(picture);
  return {reinterpret_cast<const char*>(bytes.bytes().data()), bytes.size()};
}

TEST(ImagePredictorTest, ProbabilitiesAreSoftmaxOfLogits) {
  const TrainingConfig config = ImageConfig();
  const auto predictor = ImagePredictor::Make(config, FallingLogits(config));
  ASSERT_TRUE(predictor.ok()) << predictor.status().ToString();
  const auto classes = (*predictor)->Predict(Png(test::kWidth, test::kHeight));
  ASSERT_TRUE(classes.ok()) << classes.status().ToString();
  ASSERT_EQ(classes->size(), std::size_t(kClasses));
  for (std::size_t i = 0; i < classes->size(); ++i) {
    EXPECT_EQ((*classes)[i].name, "c" + std::to_string(i));
    EXPECT_NEAR((*classes)[i].probability, std::exp(-double(i)) / Sum(), 1e-6);
  }
}

// A larger image fits only if the run crops or resizes.
TEST(ImagePredictorTest, OtherSizesNeedCropOrResize) {
  TrainingConfig config = ImageConfig();
  const auto predict = [&](const std::string& file) {
    const auto predictor = ImagePredictor::Make(config, FallingLogits(config));
    return predictor.ok() ? (*predictor)->Predict(file).status() : predictor.status();
  };
  EXPECT_THAT(predict(Png(12, 9)).message(), HasSubstr("9 x 12 pixels, must have 6 x 5"));
  config.data.image_crop_height = test::kHeight, config.data.image_crop_width = test::kWidth;
  EXPECT_TRUE(predict(Png(12, 9)).ok());
  config.data.image_crop_height = config.data.image_crop_width = 0;
  config.data.image_resize = ResizeRule::kStretch;
  config.data.image_height = test::kHeight, config.data.image_width = test::kWidth;
  EXPECT_TRUE(predict(Png(12, 9)).ok());
  EXPECT_EQ(predict("no image").code(), Code::kDataLoss);
}

}  // namespace
}  // namespace troop
