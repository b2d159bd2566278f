#include "datasets/tokenizers/byte_level_bpe.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "core/base/philox.h"
#include "core/storage/json.h"
#include "datasets/tokenizers/unicode.h"
#include "tests/datasets/tokenizers/hub_data.h"

namespace troop {
namespace {

using Ids = std::vector<TokenId>;
using Words = std::vector<std::string>;

Words SplitWords(const std::string& text) {
  Words words;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = EndOfGpt2Word(text, begin);
    words.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return words;
}

// A character per byte that is not printable in ASCII; tests use only these letters and spaces.
std::string SymbolOf(int byte) {
  std::string out;
  const bool printable =
      (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
  static int next = 0;
  if (byte == 0) next = 0;
  AppendUtf8(printable ? char32_t(byte) : char32_t(0x100 + next++), &out);
  return out;
}

// A model with the pieces of all bytes (ids 5 to 260), the given merges and their results.
BpeModel ModelOf(const std::vector<std::pair<std::string, std::string>>& merges) {
  BpeModel model{.pieces = {"<s>", "<pad>", "</s>", "<unk>", "<mask>"},
                 .special = {.pad = 1, .unknown = 3, .begin = 0, .end = 2, .mask = 4}};
  for (int byte = 0; byte < 256; ++byte) model.pieces.push_back(SymbolOf(byte));
  for (const auto& [left, right] : merges) {
    if (std::ranges::find(model.pieces, left + right) == model.pieces.end()) {
      model.pieces.push_back(left + right);
    }
  }
  model.merges = merges;
  return model;
}

std::unique_ptr<Tokenizer> Make(BpeModel model) {
  auto made = MakeByteLevelBpe(std::move(model));
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return made.ok() ? std::move(*made) : nullptr;
}

Words PiecesOf(const Tokenizer& tokenizer, const std::string& text) {
  Words pieces;
  for (const TokenId id : Encode(tokenizer, text)) pieces.emplace_back(tokenizer.piece(id));
  return pieces;
}

// Hugging Face's tokenizers 0.23.3 (tools/make_tokenizer_fixtures.py).
TEST(ByteLevelBpeTest, MatchesHuggingFaceOnVocabJson) {
  ExpectIdsOfSamples(*OpenTokenizer(HubFixture("roberta/vocab.json")), "roberta_vocab");
  const auto prefixed = MakeTokenizer(HubFixture("roberta/vocab.json"), {.add_prefix_space = true});
  ASSERT_TRUE(prefixed.ok()) << prefixed.status().ToString();
  ExpectIdsOfSamples(**prefixed, "roberta");
  EXPECT_EQ((*prefixed)->pair_format(), (PairFormat{.separators = 2, .second_type = 0}));
}

TEST(ByteLevelBpeTest, SplitsWordsAsGpt2) {
  EXPECT_EQ(SplitWords("I'll can't 'x' \t2 ab12"),
            (Words{"I", "'ll", " can", "'t", " '", "x", "'", " ", "\t", "2", " ab", "12"}));
  EXPECT_EQ(SplitWords("  a   b\n\n c\t"), (Words{" ", " a", "  ", " b", "\n\n", " c", "\t"}));
  EXPECT_EQ(SplitWords(" 's !'s"), (Words{" '", "s", " !'", "s"}));
  EXPECT_EQ(SplitWords("\u00E9t\u00E9 \u0663\u00BD\u00A0\u00A0x\u2028"),
            (Words{"\u00E9t\u00E9", " \u0663\u00BD", "\u00A0", "\u00A0", "x", "\u2028"}));
  EXPECT_EQ(SplitWords("'"), (Words{"'"}));
}

TEST(ByteLevelBpeTest, MergesLowestRankFirstAndLeftmostOfEquals) {
  const auto tokenizer = Make(ModelOf({{"b", "c"}, {"a", "b"}, {"a", "bc"}, {"d", "d"}}));
  EXPECT_EQ(PiecesOf(*tokenizer, "abc"), (Words{"abc"}));
  EXPECT_EQ(PiecesOf(*tokenizer, "aabb"), (Words{"a", "ab", "b"}));
  EXPECT_EQ(PiecesOf(*tokenizer, "ddd"), (Words{"dd", "d"}));
  // "bc" takes the "b" of the pair "a b" away, and "d" its turn before "a bc".
  const auto longer = Make(ModelOf({{"b", "c"}, {"a", "b"}, {"bc", "d"}, {"a", "bc"}}));
  std::string word;
  Words expected;
  for (int i = 0; i < 20; ++i) {
    word += "abcd";
    expected.insert(expected.end(), {"a", "bcd"});
  }
  EXPECT_EQ(PiecesOf(*longer, word), expected);
}

// A piece whose merges lead to other pieces is not found as a whole word, unless merges are
// ignored.
TEST(ByteLevelBpeTest, PieceThatMergesDoNotReachIsSplit) {
  BpeModel model = ModelOf({{"b", "c"}});
  model.pieces.push_back("abc");
  model.pieces.push_back("xy");
  EXPECT_EQ(PiecesOf(*Make(model), "abc xy"), (Words{"a", "bc", "\u0120", "x", "y"}));
  model.ignore_merges = true;
  EXPECT_EQ(PiecesOf(*Make(model), "abc"), (Words{"abc"}));
}

// Replaces the pair of lowest rank again and again, by texts.
Words MergeSlowly(const std::string& word,
                  const std::vector<std::pair<std::string, std::string>>& merges) {
  Words symbols;
  for (const char c : word) symbols.emplace_back(1, c);
  for (;;) {
    std::size_t best_rank = merges.size(), best = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = std::ranges::find(merges, std::pair(symbols[i], symbols[i + 1]));
      const auto rank = std::size_t(found - merges.begin());
      if (rank < best_rank) best_rank = rank, best = i;
    }
    if (best_rank == merges.size()) return symbols;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + std::ptrdiff_t(best) + 1);
  }
}

// Words below and above the length from which a heap replaces the scan.
TEST(ByteLevelBpeTest, RandomWordsMatchMergesOfTexts) {
  Rng rng({.run_seed = 7, .purpose = Purpose::kTest});
  std::vector<std::pair<std::string, std::string>> merges = {{"a", "b"}, {"b", "a"}};
  std::vector<std::string> pieces = {"a", "b", "c", "ab", "ba"};
  while (merges.size() < 40) {
    std::pair<std::string, std::string> merge = {pieces[rng.Below(std::uint32_t(pieces.size()))],
                                                 pieces[rng.Below(std::uint32_t(pieces.size()))]};
    const std::string merged = merge.first + merge.second;
    if (merged.size() > 8 || std::ranges::find(merges, merge) != merges.end()) continue;
    if (std::ranges::find(pieces, merged) == pieces.end()) pieces.push_back(merged);
    merges.push_back(merge);
  }
  const auto tokenizer = Make(ModelOf(merges));
  for (int i = 0; i < 300; ++i) {
    std::string word(1 + rng.Below(120), ' ');
    for (char& c : word) c = char('a' + rng.Below(3));
    EXPECT_EQ(PiecesOf(*tokenizer, word), MergeSlowly(word, merges)) << word;
  }
}

// A quadratic search would take minutes.
TEST(ByteLevelBpeTest, EncodesVeryLongWord) {
  const auto tokenizer = OpenTokenizer(HubFixture("roberta/vocab.json"));
  std::string word;
  while (word.size() < 200000) word += "thenation";
  EXPECT_GT(Encode(*tokenizer, word).size(), 20000);
}

TEST(ByteLevelBpeTest, InvalidBytesCountAsReplacementCharacter) {
  const auto tokenizer = Make(ModelOf({}));
  EXPECT_EQ(Encode(*tokenizer, "a\xFF\xC3"), Encode(*tokenizer, "a\uFFFD\uFFFD"));
  EXPECT_EQ(Encode(*tokenizer, "\uFFFD"), (Ids{5 + 0xEF, 5 + 0xBF, 5 + 0xBD}));
}

TEST(ByteLevelBpeTest, FingerprintDependsOnFilesAndPrefix) {
  const std::string vocab = ReadAll(HubFixture("roberta/vocab.json"));
  const std::string merges = ReadAll(HubFixture("roberta/merges.txt"));
  const auto print = [&](const std::string& lines, bool prefix) {
    const auto made = MakeByteLevelBpe(vocab, lines, {.add_prefix_space = prefix});
    EXPECT_TRUE(made.ok());
    return made.ok() ? (*made)->fingerprint() : 0;
  };
  EXPECT_EQ(print(merges, false), print(merges, false));
  EXPECT_NE(print(merges, false), print(merges, true));
  EXPECT_NE(print(merges, false),
            print(merges.substr(0, merges.rfind('\n', merges.size() - 2) + 1), false));
}

TEST(ByteLevelBpeTest, RejectsInvalidFiles) {
  const std::string vocab = ReadAll(HubFixture("roberta/vocab.json"));
  const auto message = [](const std::string& json, const std::string& merges,
                          const TokenizerOptions& options = {}) {
    const auto made = MakeByteLevelBpe(json, merges, options);
    return made.ok() ? "accepted" : made.status().message();
  };
  EXPECT_EQ(message(vocab, "#version: 0.2\nt h\n\xC4\xA0 t\r\n"), "accepted");
  EXPECT_EQ(message("[]", ""), "the vocabulary is not an object of ids by piece");
  EXPECT_EQ(message(R"({"a": 0.5})", ""), "the id of the piece \"a\" is not an integer");
  EXPECT_EQ(message(R"({"a": 16777216})", ""),
            "the piece \"a\" has id 16777216, must be in 0 to 16777215");
  EXPECT_EQ(message(R"({"a": 1})", ""), "no piece has id 0; ids must be 0 to 0");
  EXPECT_EQ(message(R"({"a": 0, "b": 0})", ""), "the pieces \"a\" and \"b\" have the same id 0");
  EXPECT_EQ(message(R"({"": 0})", ""), "the piece with id 0 is empty");
  EXPECT_EQ(message("{}", ""), "the vocabulary has no pieces");
  EXPECT_EQ(message(Replaced(vocab, "<mask>", "<mark>"), ""),
            "it has no piece <mask>, a special token that is required");
  EXPECT_EQ(message(Replaced(vocab, "\"!\"", "\"!!!!!!!\""), ""),
            "it has no piece \"!\" for the byte 33; only vocabularies of byte-level BPE with all "
            "256 bytes are supported");
  EXPECT_EQ(message(vocab, "t h\nth  e\n"),
            "merges.txt: line 2 is not a pair with one space: \"th  e\"");
  EXPECT_EQ(message(vocab, "t h\nt h\n"), "merge 2 (\"t\" \"h\") is a duplicate");
  EXPECT_EQ(message(vocab, "t \xE4\xB8\xAD\n"),
            "merge 1 uses \"\u4E2D\", which is not in the "
            "vocabulary");
  EXPECT_EQ(message(vocab, "Q Q\n"), "merge 1 uses \"QQ\", which is not in the vocabulary");
}

}  // namespace
}  // namespace troop
