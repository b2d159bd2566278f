#include "learners/supervised/bulk_predictor.h"

#include <gtest/gtest.h>

#include <filesystem>

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

}  // namespace
}  // namespace troop
