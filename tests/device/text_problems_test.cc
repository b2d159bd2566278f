#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "learners/supervised/supervised.h"
#include "learners/supervised/text_evaluator.h"
#include "nn/models/model.h"
#include "nn/models/text_model.h"

#include "tests/core/temp_folder.h"
#include "tests/learners/supervised_fixture.h"

// Labels, numbers, weighted classes and pairs of texts on the (emulated) GPU, compared with the
// CPU.
namespace troop {
namespace {

using test::SupervisedConfig;

// A kind of texts: its table, and the settings that it needs.
struct Texts {
  const char* name;
  ProblemType problem = ProblemType::kSingleLabel;
  bool weighted = false;
  const char* table;
};
constexpr Texts kTexts[] = {
    {"labels", ProblemType::kMultiLabel, false,
     "text,label\ngood film,b|a\nbad plot,b\na great movie,a\nnot good and not bad,\nloved it,c|a\n"
     "a bad and bad film,b|c\ngood,a\n"},
    {"numbers", ProblemType::kRegression, false,
     "text,label\ngood film,4\nbad plot,-1\na great movie,5.5\nnot good and not bad,2\nloved it,6\n"
     "a bad and bad film,-2\ngood,3\n"},
    {"weighted classes", ProblemType::kSingleLabel, true,
     "text,label\ngood film,x\nbad plot,y\na great movie,x\nnot good and not bad,x\nloved it,z\n"
     "a bad and bad film,y\ngood,x\n"},
    {"pairs", ProblemType::kSingleLabel, false,
     "premise,hypothesis,label\ngood film,a film,x\nbad plot,was good,y\na great movie,great,x\n"
     "not good and not bad,a bad film,y\nloved it,it,x\na bad and bad film,film,x\ngood,bad,y\n"},
};

// A resolved config of a small model with dropout, in batches and micro-batches that do not divide.
TrainingConfig ConfigOfTexts(const Texts& texts, const TempFolder& folder, DeviceChoice device) {
  TrainingConfig config = SupervisedConfig("bert");
  config.learner.device = device;
  config.learner.batch_size = 5;
  config.learner.micro_batch_size = 3;
  config.model.pretrained = "";
  config.model.num_hidden_layers = 1;
  config.model.dropout = config.model.classifier_dropout = 0.2;
  config.model.problem_type = texts.problem;
  if (texts.weighted) config.learner.class_weights = ClassWeights::kBalanced;
  config.data.reviews = folder.path() + "/mine.csv";
  std::ofstream(config.data.reviews) << texts.table;
  const auto settings = DeriveDataSettings(config);
  EXPECT_TRUE(settings.ok()) << settings.status().ToString();
  if (settings.ok()) config.model.labels = settings->labels;
  return config;
}

std::unique_ptr<Algorithm> MakeLearner(const TrainingConfig& config) {
  auto made = MakeAlgorithm(config, ReviewSpec(ModelSetupOf(config)));
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return made.ok() ? *std::move(made) : nullptr;
}

double RelativeError(std::span<const float> a, std::span<const float> b) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(double(a[i]) - double(b[i]), 2);
    size += double(b[i]) * double(b[i]);
  }
  return std::sqrt(difference / size);
}

// Evaluates the training examples.
std::unique_ptr<TextEvaluator> EvaluateTraining(const TrainingConfig& config,
                                                std::span<const float> weights) {
  const auto loaded = LoadReviewData(config);
  EXPECT_TRUE(loaded.ok()) << loaded.status().ToString();
  auto data = std::make_shared<ReviewData>(**loaded);
  data->test = data->train;
  auto trial = TextEvaluator::Make(config, data, {.episodes = 100, .final = true}, weights);
  EXPECT_TRUE(trial.ok()) << trial.status().ToString();
  if (!trial.ok()) return nullptr;
  while ((*trial)->Advance(1) != Evaluator::State::kOver) {
  }
  EXPECT_TRUE((*trial)->error().ok()) << (*trial)->error().ToString();
  return *std::move(trial);
}

// Reports and weights of that many updates.
void CompareUpdates(Algorithm* there, Algorithm* here, int updates) {
  std::vector<float> priority(1);
  for (int update = 0; update < updates; ++update) {
    const auto got = there->Update(SampleBatch(), 0, priority);
    const auto want = here->Update(SampleBatch(), 0, priority);
    ASSERT_TRUE(got.ok()) << got.status().ToString();
    EXPECT_NEAR(got->loss, want->loss, 1e-4 * want->loss);
    EXPECT_NEAR(got->gradient_norm, want->gradient_norm, 1e-3 * want->gradient_norm);
    EXPECT_NEAR(got->accuracy, want->accuracy, 1e-9);
    EXPECT_EQ(got->rows, want->rows);
    EXPECT_EQ(got->sequences, want->sequences);
  }
  EXPECT_LT(RelativeError(there->value(), here->value()), 1e-4);
}

TEST(DeviceTextProblemsTest, UpdatesMatchCpu) {
  for (const Texts& texts : kTexts) {
    SCOPED_TRACE(texts.name);
    const TempFolder folder;
    const auto there = MakeLearner(ConfigOfTexts(texts, folder, DeviceChoice::kCuda)),
               here = MakeLearner(ConfigOfTexts(texts, folder, DeviceChoice::kCpu));
    ASSERT_TRUE(there && here);
    EXPECT_FALSE(there->device_gradient()->device_values().empty());
    CompareUpdates(there.get(), here.get(), 3);
  }
}

// The families that differ by embeddings, dropout and heads, with both heads. RoBERTa takes unknown
// words of this vocabulary for padding, whose positions differ.
TEST(DeviceTextProblemsTest, FamiliesMatchCpu) {
  for (const ModelArchitecture family :
       {ModelArchitecture::kRoberta, ModelArchitecture::kDistilBert, ModelArchitecture::kElectra}) {
    for (const AlgorithmKind algorithm : {AlgorithmKind::kClassifier, AlgorithmKind::kMaskedLm}) {
      SCOPED_TRACE(fmt::format("{} {}", EnumName(family), EnumName(algorithm)));
      TrainingConfig config = SupervisedConfig("bert");
      config.model.architecture = family;
      config.model.pretrained = "";
      config.model.max_position_embeddings = family == ModelArchitecture::kRoberta ? 26 : 24;
      if (family == ModelArchitecture::kElectra) config.model.embedding_size = 16;
      config.model.dropout = config.model.classifier_dropout = config.model.attention_dropout = 0.2;
      config.learner.algorithm = algorithm;
      config.learner.batch_size = 5;
      config.learner.device = DeviceChoice::kCuda;
      const auto there = MakeLearner(config);
      config.learner.device = DeviceChoice::kCpu;
      const auto here = MakeLearner(config);
      ASSERT_TRUE(there && here);
      EXPECT_FALSE(there->device_gradient()->device_values().empty());
      CompareUpdates(there.get(), here.get(), 2);
    }
  }
}

// All measures, since the logits come from the device: F1, areas under curves, correlations, and
// the confusion matrix. A correlation of nearly equal predictions amplifies their rounding.
TEST(DeviceTextProblemsTest, MeasuresMatchCpu) {
  for (const Texts& texts : kTexts) {
    SCOPED_TRACE(texts.name);
    const TempFolder folder;
    const TrainingConfig config = ConfigOfTexts(texts, folder, DeviceChoice::kCuda);
    const auto trained = MakeLearner(config);
    ASSERT_TRUE(trained);
    const auto there = EvaluateTraining(config, trained->value()),
               here = EvaluateTraining(ConfigOfTexts(texts, folder, DeviceChoice::kCpu),
                                       trained->value());
    ASSERT_TRUE(there && here);
    EXPECT_NEAR(there->Report().loss, here->Report().loss, 1e-5);
    EXPECT_NEAR(there->Report().return_mean, here->Report().return_mean, 1e-2);
    const auto got = there->Measures(), want = here->Measures();
    ASSERT_EQ(got.size(), want.size());
    ASSERT_GE(got.size(), 3u);
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].first, want[i].first);
      if (std::isnan(want[i].second)) continue;
      EXPECT_NEAR(got[i].second, want[i].second, 1e-4);
    }
    const TextScores scores = there->Scores(20), expected = here->Scores(20);
    EXPECT_EQ(scores.examples, 7);
    EXPECT_EQ(scores.confusion, expected.confusion);
  }
}

}  // namespace
}  // namespace troop
