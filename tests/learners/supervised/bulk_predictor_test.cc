#include "learners/supervised/bulk_predictor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "learners/checkpoint.h"
#include "learners/supervised/supervised.h"
#include "nn/models/text_model.h"
#include "tests/core/temp_folder.h"
#include "tests/learners/supervised_fixture.h"

namespace troop {
namespace {

// Texts of different lengths, in more batches than threads: the answers are those of single calls.
// Under tsan this checks what the threads share.
TEST(BulkPredictorTest, ThreadsGiveTheAnswersOfSingleCalls) {
  const TempFolder folder;
  const std::string model = folder.path() + "/model";
  std::filesystem::copy(test::SupervisedFixture("bert"), model);
  std::filesystem::copy(test::SupervisedFixture("vocab.txt"), model);
  const auto loaded = TextPredictor::Load(model, [](std::string_view, const std::string&) {
    return Result<TrainingConfig>(TrainingConfig());
  });
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  std::vector<std::string> texts;
  for (int i = 0; i < 400; ++i) {
    texts.emplace_back();
    for (int word = 0; word < i * 7 % 20; ++word) texts.back() += word % 3 == 0 ? "good " : "film ";
  }
  std::vector<TextInput> inputs;
  for (const std::string& text : texts) inputs.push_back({text});
  BulkPredictor bulk(loaded->get(), 3);
  const auto answers = bulk.Predict(inputs);
  ASSERT_TRUE(answers.ok()) << answers.status().ToString();
  ASSERT_EQ(answers->size(), texts.size());
  for (std::size_t i = 0; i < texts.size(); i += 37) {
    const auto one = (*loaded)->Predict(inputs[i]);
    ASSERT_TRUE(one.ok());
    EXPECT_EQ((*answers)[i].tokens, one->tokens) << i;
    ASSERT_EQ((*answers)[i].classes.size(), one->classes.size()) << i;
    for (std::size_t c = 0; c < one->classes.size(); ++c)
      EXPECT_NEAR((*answers)[i].classes[c].probability, one->classes[c].probability, 1e-6) << i;
  }
}

// A checkpoint is predicted in the precision of its run: near transformers' values, which are those
// of f32, but not equal to them.
TEST(TextPredictorTest, CheckpointIsPredictedInPrecisionOfItsRun) {
  const TempFolder folder;
  TrainingConfig config = test::SupervisedConfig("bert");
  config.data.max_length = config.model.max_position_embeddings;
  const auto algorithm = MakeSupervised(config);
  const auto module = MakeTextModel(ModelSetupOf(config));
  const auto storage = MakeDiskStorage(folder.path());
  ASSERT_TRUE(algorithm.ok() && module.ok() && storage.ok());
  ASSERT_TRUE(WriteCheckpoint(storage->get(), **module, {.state = (*algorithm)->State()}, 3).ok());
  const auto load = [&](NetworkPrecision precision) {
    config.network.precision = precision;
    auto loaded = TextPredictor::Load(folder.path(), [&](std::string_view, const std::string&) {
      return Result<TrainingConfig>(config);
    });
    EXPECT_TRUE(loaded.ok()) << loaded.status().ToString();
    return *std::move(loaded);
  };
  const auto exact = load(NetworkPrecision::kFp32), rounded = load(NetworkPrecision::kBf16);
  const JsonValue& expected = test::SupervisedExpected();
  double apart = 0;
  for (std::size_t i = 0; i < expected.Find("texts")->array.size(); ++i) {
    const std::string text = *expected.Find("texts")->array[i].String("text");
    const double p = expected.Find("bert")->Find("texts")->array[i].array[1].number;
    EXPECT_NEAR(exact->Predict({text})->classes[1].probability, p, 1e-4) << i;
    const double other = rounded->Predict({text})->classes[1].probability;
    EXPECT_NEAR(other, p, 0.02) << i;
    apart = std::max(apart, std::abs(other - p));
  }
  EXPECT_GT(apart, 1e-4);
}

}  // namespace
}  // namespace troop
