// BLEU and its words, against sacrebleu 2.6 (tools/fixtures/make_translation_fixtures.py).
#include "datasets/translation/bleu.h"

#include <gmock/gmock.h>

#include <fstream>
#include <iterator>

#include "core/storage/json.h"

namespace troop {
namespace {

JsonValue BleuExpected() {
  std::ifstream file(TROOP_SOURCE_DIR "/tests/fixtures/translation/bleu.json");
  auto parsed = ParseJson(std::string{std::istreambuf_iterator<char>(file), {}});
  EXPECT_TRUE(parsed.ok()) << parsed.status().ToString();
  return *std::move(parsed);
}

TEST(BleuTest, WordsEqualThoseOfSacrebleu) {
  const JsonValue expected = BleuExpected();
  for (const JsonValue& one : expected.Find("words")->array) {
    std::vector<std::string> words;
    for (const JsonValue& word : one.Find("words")->array) words.push_back(word.string);
    EXPECT_EQ(SplitBleuWords(*one.String("text")), words) << *one.String("text");
  }
}

TEST(BleuTest, ScoresEqualThoseOfSacrebleu) {
  const JsonValue expected = BleuExpected();
  for (const JsonValue& one : expected.Find("scores")->array) {
    const auto& outputs = one.Find("outputs")->array;
    const auto& references = one.Find("references")->array;
    BleuCounts counts;
    for (std::size_t i = 0; i < outputs.size(); ++i)
      counts += CountBleu(outputs[i].string, references[i].string);
    EXPECT_NEAR(BleuScore(counts), one.Find("score")->number, 1e-9) << outputs[0].string;
  }
}

TEST(BleuTest, NothingScoresZero) { EXPECT_EQ(BleuScore({}), 0); }

}  // namespace
}  // namespace troop
