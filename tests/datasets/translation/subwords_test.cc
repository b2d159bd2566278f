// Subwords by byte-pair encoding, against subword-nmt 0.3.8
// (tools/fixtures/make_translation_fixtures.py).
#include "datasets/translation/subwords.h"

#include <gmock/gmock.h>

#include <fstream>
#include <iterator>

#include "core/storage/json.h"

namespace troop {
namespace {

using testing::HasSubstr;

const JsonValue& SubwordsExpected() {
  static const JsonValue* const json = [] {
    std::ifstream file(TROOP_SOURCE_DIR "/tests/fixtures/translation/subwords.json");
    auto parsed = ParseJson(std::string{std::istreambuf_iterator<char>(file), {}});
    EXPECT_TRUE(parsed.ok()) << parsed.status().ToString();
    return new JsonValue(*std::move(parsed));
  }();
  return *json;
}

WordCounts LearningWords() {
  WordCounts words;
  for (const JsonValue& line : SubwordsExpected().Find("lines")->array)
    CountWords(line.string, &words);
  return words;
}

// The text of a symbol as subword-nmt's file of merges has it.
std::string PieceText(const Subword& symbol) { return symbol.text + (symbol.final ? "</w>" : ""); }

// The vocabulary of all merges.
Subwords All() {
  const LearnedMerges learned = LearnMerges(LearningWords(), 1 << 20);
  auto all = Subwords::Learn(LearningWords(), Subwords::kSpecials + std::ssize(learned.symbols));
  EXPECT_TRUE(all.ok()) << all.status().ToString();
  return *std::move(all);
}

TEST(SubwordsTest, MergesEqualThoseOfSubwordNmt) {
  const LearnedMerges learned = LearnMerges(LearningWords(), 1 << 20);
  const auto& merges = SubwordsExpected().Find("merges")->array;
  ASSERT_EQ(learned.merges.size(), merges.size());
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const auto [left, right] = learned.merges[i];
    EXPECT_EQ(PieceText(learned.symbols[std::size_t(left)]), merges[i].array[0].string) << i;
    EXPECT_EQ(PieceText(learned.symbols[std::size_t(right)]), merges[i].array[1].string) << i;
  }
}

TEST(SubwordsTest, EncodingsEqualThoseOfSubwordNmt) {
  const Subwords all = All();
  for (const JsonValue& one : SubwordsExpected().Find("encoded")->array) {
    const std::string text = *one.String("text");
    std::vector<std::string> pieces;
    for (const TokenId id : all.Encode(text)) {
      // subword-nmt keeps characters that training did not have; here they are one special piece.
      if (id == Subwords::kUnknown) {
        pieces.emplace_back("?");
        continue;
      }
      const Subword& symbol = all.learned().symbols[std::size_t(id - Subwords::kSpecials)];
      pieces.push_back(symbol.text + (symbol.final ? "" : "@@"));
    }
    const auto& expected = one.Find("pieces")->array;
    ASSERT_EQ(pieces.size(), expected.size()) << text;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (pieces[i] != "?")
        EXPECT_EQ(pieces[i], expected[i].string) << text;
      else
        EXPECT_THAT(expected[i].string, HasSubstr("Ω"));
    }
  }
}

TEST(SubwordsTest, DecodingReturnsTheSentence) {
  const Subwords all = All();
  for (const JsonValue& line : SubwordsExpected().Find("lines")->array) {
    // Several spaces between words become one.
    if (line.string.find("  ") == std::string::npos) {
      EXPECT_EQ(all.Decode(all.Encode(line.string)), line.string);
    }
  }
  EXPECT_EQ(all.Decode(all.Encode(" the \t file ")), "the file");
  EXPECT_EQ(all.Decode({Subwords::kBegin, Subwords::kUnknown, Subwords::kEnd, -5, 1 << 30}), "⁇⁇⁇");
  EXPECT_EQ(all.Decode({}), "");
}

TEST(SubwordsTest, VocabularyHasTheSizeThatTheDataAllow) {
  const std::int64_t most = All().size();
  const auto less = Subwords::Learn(LearningWords(), most - 100);
  ASSERT_TRUE(less.ok());
  EXPECT_EQ(less->size(), most - 100);
  EXPECT_THAT(Subwords::Learn(LearningWords(), most + 1).status().message(),
              HasSubstr("is too large: the sentences give at most " + std::to_string(most)));
  EXPECT_THAT(Subwords::Learn(LearningWords(), 10).status().message(),
              HasSubstr("10 subwords is too small"));
  EXPECT_EQ(Subwords::Learn({}, 10).status().code(), Code::kInvalidArgument);
}

TEST(SubwordsTest, FileRestoresTheVocabulary) {
  const Subwords all = All();
  const std::string text = all.Serialize();
  const auto read = Subwords::Parse(text);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->learned().symbols, all.learned().symbols);
  EXPECT_EQ(read->learned().merges, all.learned().merges);
  EXPECT_EQ(read->Encode("die Datei wurde"), all.Encode("die Datei wurde"));
  // Shorter files are refused.
  for (std::size_t i = 0; i < text.size(); i += 13)
    EXPECT_FALSE(Subwords::Parse(text.substr(0, i)).ok()) << i;
  EXPECT_FALSE(Subwords::Parse(text + "0 1\n").ok());
}

TEST(SubwordsTest, DamagedFilesAreRefused) {
  for (const char* const text :
       {"", "x\n", "troop subwords 1 1\n", "troop subwords 1 -1 0\n", "troop subwords 1 1 0\nab\n",
        "troop subwords 1 2 0\n=a\n=a\n", "troop subwords 1 2 1\n-a\n=b\n0 2\n",
        "troop subwords 1 2 1\n-a\n=b\n1 0\n", "troop subwords 1 2 1\n-a\n=b\n0\n",
        "troop subwords 1 99999999999999999999 0\n"}) {
    EXPECT_EQ(Subwords::Parse(text).status().code(), Code::kDataLoss) << text;
  }
  // Each merge doubles the text, up to the limit.
  std::string doubling = "troop subwords 1 1 60\n-a\n";
  for (int i = 0; i < 60; ++i) doubling += std::to_string(i) + " " + std::to_string(i) + "\n";
  EXPECT_THAT(Subwords::Parse(doubling).status().message(), HasSubstr("too long"));
}

}  // namespace
}  // namespace troop
