// Training of translation models: data, parts of a batch, exact resume, and what is learned.
#include "learners/translation/translation_training.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "learners/translation/translation_evaluator.h"
#include "nn/arena.h"

namespace troop {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kSize = 28;  // subwords

// Numbers in words: the translation of "two seven" is "deux sept".
SentencePairs NumberPairs(std::uint32_t from, std::uint32_t to) {
  const char* const english[] = {"zero", "one", "two"};
  const char* const french[] = {"zéro", "un", "deux"};
  SentencePairs pairs;
  for (std::uint32_t n = from; n < to; ++n) {
    pairs.source.emplace_back();
    pairs.target.emplace_back();
    // Five words each, since BLEU needs four.
    for (std::uint32_t rest = n + 81; rest > 0; rest /= 3) {
      pairs.source.back() += std::string(" ") + english[rest % 3];
      pairs.target.back() += std::string(" ") + french[rest % 3];
    }
  }
  return pairs;
}

std::shared_ptr<const TranslationData> Data() {
  auto data = MakeTranslationData(NumberPairs(0, 80), NumberPairs(20, 30), {.vocabulary = kSize});
  EXPECT_TRUE(data.ok()) << data.status().ToString();
  return *data;
}

// A small model with dropout and label smoothing.
TranslationOptions Options() {
  return {.model = {.vocabulary = kSize,
                    .embedding = 24,
                    .hidden = 24,
                    .attention = 16,
                    .encoder_layers = 2,
                    .decoder_layers = 2,
                    .dropout = 0.1f}};
}

// Five batches an epoch.
TrainingConfig TranslationConfig() {
  TrainingConfig config;
  config.learner.algorithm = AlgorithmKind::kClassifier;
  config.learner.batch_size = 16;
  config.learner.max_grad_norm = 5;
  config.run.max_updates = 1000;
  config.optimizer.type = OptimizerType::kAdam;
  config.optimizer.learning_rate = 0.02;
  return config;
}

std::unique_ptr<Algorithm> Make(const TrainingConfig& config) {
  auto made = MakeTranslationTraining(config, Options(), Data());
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return *std::move(made);
}

LossReport ComputePart(Algorithm* algorithm) {
  std::vector<float> priority(1);
  const auto report = algorithm->ComputeGradient(SampleBatch(), priority);
  EXPECT_TRUE(report.ok()) << report.status().ToString();
  return report.ok() ? *report : LossReport();
}

// Data parallelism: the mean of the learners' gradients is that of one learner.
TEST(TranslationTrainingTest, PartsOfABatchAddUpToTheWholeBatch) {
  const auto whole = Make(TranslationConfig());
  const LossReport report = ComputePart(whole.get());
  for (const int ranks : {2, 3}) {
    std::vector<double> sum(whole->gradient().size());
    double tokens = 0, loss = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      TrainingConfig config = TranslationConfig();
      config.learner.micro_batch_size = 3;
      const auto part = Make(config);
      part->batch_partition()->SetRank(rank, ranks);
      const LossReport mine = ComputePart(part.get());
      tokens += mine.rows;
      loss += mine.loss * mine.rows;
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += double(part->gradient()[i]) / ranks;
    }
    EXPECT_EQ(tokens, report.rows);
    EXPECT_NEAR(loss / tokens, report.loss, 1e-5);
    for (std::size_t i = 0; i < sum.size(); ++i)
      ASSERT_NEAR(sum[i], double(whole->gradient()[i]), 1e-5) << i;
  }
}

// Dropout is on, so that its keys must continue, too.
TEST(TranslationTrainingTest, StateContinuesExactly) {
  const auto first = Make(TranslationConfig());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(first->Update(SampleBatch(), 0, {}).ok());
  const auto second = Make(TranslationConfig());
  ASSERT_TRUE(second->SetState(first->State()).ok());
  for (Algorithm* const one : {first.get(), second.get()}) {
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(one->Update(SampleBatch(), 0, {}).ok());
  }
  EXPECT_THAT(second->value(), testing::ElementsAreArray(first->value()));
}

// The validation pairs are among the training pairs here: what is learned must be remembered.
TEST(TranslationTrainingTest, LearnsToTranslateNumbers) {
  const auto algorithm = Make(TranslationConfig());
  const auto trial = [&] {
    auto made = TranslationEvaluator::Make(Options().model, {.beam = 2, .length_max = 30}, Data(),
                                           {.episodes = 10}, algorithm->value());
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    while ((*made)->Advance(1) != Evaluator::State::kOver) continue;
    EXPECT_TRUE((*made)->error().ok());
    return *std::move(made);
  };
  const auto before = trial();
  EXPECT_LT(before->Report().return_mean, 10);
  // Its loss, too, is that of no knowledge: a new model is about as sure as a uniform distribution.
  EXPECT_NEAR(before->Report().loss, std::log(double(kSize)), 0.3);
  for (int i = 0; i < 250; ++i) ASSERT_TRUE(algorithm->Update(SampleBatch(), 0, {}).ok());
  const auto after = trial();
  const EvaluationReport report = after->Report();
  EXPECT_GT(report.return_mean, 20);
  EXPECT_LE(report.return_min, report.return_mean);
  EXPECT_LE(report.return_mean, report.return_max + 1e-9);
  EXPECT_EQ(report.episodes, 10);
  EXPECT_LT(report.loss, 1);
  EXPECT_NEAR(after->Measures()[1].second, std::exp(report.loss), 1e-9);
  EXPECT_EQ(after->translations().size(), 10u);
}

TEST(TranslationDataTest, LongPairsAreCountedAndSplitsAreDisjoint) {
  SentencePairs pairs = NumberPairs(0, 80);
  pairs.source.emplace_back();
  for (int i = 0; i < 61; ++i) pairs.source.back() += "z ";
  pairs.target.emplace_back("un");
  const TranslationDataOptions options{
      .vocabulary = kSize, .length_max = 60, .validation_split = 0.25, .seed = 3};
  const auto data = MakeTranslationData(pairs, {}, options);
  ASSERT_TRUE(data.ok()) << data.status().ToString();
  const TranslationData& d = **data;
  EXPECT_EQ(d.too_long, 1);
  EXPECT_EQ(d.train.size() + d.validation.size(), 80);
  EXPECT_NEAR(double(d.validation.size()), 20, 1);
  std::vector<std::string> all = d.train.references;
  all.insert(all.end(), d.validation.references.begin(), d.validation.references.end());
  std::ranges::sort(all);
  EXPECT_EQ(std::ranges::unique(all).size(), 0u);
  // The split depends on the seed, and the identity on the split.
  TranslationDataOptions other = options;
  other.seed = 4;
  EXPECT_NE((*MakeTranslationData(pairs, {}, other))->Identity(), d.Identity());
  EXPECT_EQ((*MakeTranslationData(pairs, {}, options))->Identity(), d.Identity());
}

TEST(TranslationDataTest, BadDataAreRefused) {
  const auto message = [](const SentencePairs& train, const SentencePairs& validation,
                          const TranslationDataOptions& options) {
    return MakeTranslationData(train, validation, options).status().message();
  };
  const SentencePairs pairs = NumberPairs(0, 20);
  EXPECT_THAT(message(pairs, {}, {.vocabulary = kSize}), HasSubstr("no validation pairs are left"));
  EXPECT_THAT(message(pairs, pairs, {.vocabulary = kSize, .validation_split = 0.5}),
              HasSubstr("omit one of the two"));
  EXPECT_THAT(message(pairs, pairs, {.vocabulary = 1000}), HasSubstr("too large"));
  EXPECT_THAT(message(pairs, pairs, {.vocabulary = kSize, .length_max = 1}),
              HasSubstr("no training pairs are left"));
  TranslationOptions options = Options();
  options.model.vocabulary = kSize + 1;
  EXPECT_THAT(MakeTranslationTraining(TranslationConfig(), options, Data()).status().message(),
              HasSubstr("vocabulary of 29, but the data have 28 subwords"));
}

TEST(TranslatorTest, LongSourcesAreTruncatedAndEmptyOnesGiveNothing) {
  const auto algorithm = Make(TranslationConfig());
  auto made = Translator::Make(Options().model, Data()->subwords, algorithm->value(), 3);
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  const BeamOptions options{.beam = 2, .length_max = 5};
  EXPECT_TRUE((*made)->Translate("zero one two zero one", options).truncated);
  EXPECT_EQ((*made)->Translate("  ", options).text, "");
  const auto weights = algorithm->value();
  EXPECT_THAT(
      Translator::Make(Options().model, Data()->subwords, weights.first(10), 3).status().message(),
      HasSubstr("10 weights, but the model has"));
}

}  // namespace
}  // namespace troop
