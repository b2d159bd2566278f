#include "datasets/tokenizers/wordpiece.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/datasets/data.h"

namespace troop {
namespace {

using Ids = std::vector<TokenId>;

// A vocabulary of the named pieces behind the five special ones: the first has id 5.
std::unique_ptr<Tokenizer> Make(const std::string& lines, bool cased = false) {
  auto made = MakeWordPiece("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n" + lines, {.cased = cased});
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return std::move(*made);
}
constexpr TokenId kUnknown = 1;

// Hugging Face's tokenizers 0.23.3 on the same vocabulary (tools/make_text_fixtures.py).
TEST(WordPieceTest, MatchesHuggingFaceOnSmallVocabulary) {
  for (const bool cased : {false, true}) {
    const auto tokenizer = OpenTokenizer(TextFixture("wordpiece.txt"), cased);
    for (const JsonValue& line : ReadJsonLines(TextFixture("samples.jsonl"))) {
      const std::string& text = line.Find("text")->string;
      EXPECT_EQ(Encode(*tokenizer, text), IdsOf(line, cased ? "cased" : "uncased")) << text;
    }
  }
}

TEST(WordPieceTest, MatchesGoldenStringsOfBert) {
  TROOP_SKIP_WITHOUT_DATA("tokenizers/golden_bert_sample.jsonl");
  const auto tokenizer = OpenTokenizer(DataPath("tokenizers/bert-base-uncased-vocab.txt"));
  int checked = 0;
  const std::string samples = DataPath("tokenizers/golden_bert_sample.jsonl");
  for (const JsonValue& line : ReadJsonLines(samples, R"({"text")")) {
    const std::string& text = line.Find("text")->string;
    EXPECT_EQ(EncodeWithSpecialTokens(*tokenizer, text, 10000), IdsOf(line, "ids")) << text;
    ++checked;
  }
  EXPECT_EQ(checked, 24);
}

TEST(WordPieceTest, TakesLongestPieceGreedily) {
  const auto tokenizer = Make("un\nunaf\n##af\n##f\n##able\n##a\n");
  EXPECT_EQ(Encode(*tokenizer, "unaffable"), (Ids{6, 8, 9}));
  EXPECT_EQ(Encode(*tokenizer, "Un"), (Ids{5}));
  // Greedy: unaf + ##a, and no way on, though un + ##af + ... would not help either.
  EXPECT_EQ(Encode(*tokenizer, "unafab un"), (Ids{kUnknown, 5}));
}

TEST(WordPieceTest, WordOfMoreThanHundredCharactersIsUnknown) {
  const auto tokenizer = Make("a\n##a\né\n##é\n", true);
  EXPECT_EQ(Encode(*tokenizer, std::string(100, 'a')).size(), 100);
  EXPECT_EQ(Encode(*tokenizer, std::string(101, 'a')), (Ids{kUnknown}));
  std::string wide;  // characters, not bytes, are counted
  for (int i = 0; i < 100; ++i) wide += "é";
  EXPECT_EQ(Encode(*tokenizer, wide).size(), 100);
  EXPECT_EQ(Encode(*tokenizer, wide + "é"), (Ids{kUnknown}));
}

TEST(WordPieceTest, NonAsciiCharacterDoesNotAffectNeighbors) {
  const auto tokenizer = Make("a\nb\nc\n.\ne\n##c\n中\n");
  EXPECT_EQ(Encode(*tokenizer, "a b.\u00E9c. a"), (Ids{5, 6, 8, 9, 10, 8, 5}));
  EXPECT_EQ(Encode(*tokenizer, "a中b a"), (Ids{5, 11, 6, 5}));
  EXPECT_EQ(Encode(*tokenizer, "a\u2028b\u00A0c"), (Ids{5, 6, 7}));
}

TEST(WordPieceTest, SkipsInvalidUtf8) {
  const auto tokenizer = Make("ab\n");
  EXPECT_EQ(Encode(*tokenizer,
                   "a\xFF"
                   "b\xC3"),
            (Ids{5}));
  EXPECT_EQ(Encode(*tokenizer, std::string("a\0b", 3)), (Ids{5}));
}

// Characters of a later Unicode than the tables vanished, and the words around them were joined.
TEST(WordPieceTest, UnassignedCharacterIsUnknown) {
  const auto tokenizer = Make("a\nb\nab\n");
  EXPECT_EQ(Encode(*tokenizer, "\U0001FAE8 a\u0378b a"), (Ids{kUnknown, kUnknown, 5}));
}

TEST(WordPieceTest, RejectsInvalidVocabularyNamingLine) {
  const std::string start = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n";
  const auto message = [](const std::string& vocabulary) {
    const auto made = MakeWordPiece(vocabulary, {});
    return made.ok() ? "accepted" : made.status().message();
  };
  EXPECT_EQ(message(start), "it has no line [MASK]; it is not a vocabulary of BERT");
  EXPECT_EQ(message(start + "[MASK]\n\xFF\n"), "line 6 is not UTF-8");
  EXPECT_EQ(message(start + "[MASK]\n\nx"), "line 6 is empty; expected a piece");
  EXPECT_EQ(message(start + "[MASK]\r\nx\nx\n"), "pieces 5 and 6 are equal: \"x\"");
}

TEST(WordPieceTest, FingerprintDependsOnVocabularyAndCase) {
  EXPECT_EQ(Make("a\nb\n")->fingerprint(), Make("a\nb\n")->fingerprint());
  EXPECT_NE(Make("a\nb\n")->fingerprint(), Make("b\na\n")->fingerprint());
  EXPECT_NE(Make("a\nb\n")->fingerprint(), Make("a\nb\n", true)->fingerprint());
}

TEST(TokenizerTest, TruncatesLongTextBeforeEndToken) {
  const auto tokenizer = Make("a\n");
  EXPECT_EQ(EncodeWithSpecialTokens(*tokenizer, "a a a", 5), (Ids{2, 5, 5, 5, 3}));
  EXPECT_EQ(EncodeWithSpecialTokens(*tokenizer, "a a a", 4), (Ids{2, 5, 5, 3}));
  EXPECT_EQ(EncodeWithSpecialTokens(*tokenizer, "a a a", 2), (Ids{2, 3}));
}

TEST(TokenizerTest, LeftTruncationKeepsStartToken) {
  const auto tokenizer = Make("a\nb\nc\n");
  const auto encode = [&](std::size_t max_length) {
    return EncodeWithSpecialTokens(*tokenizer, "a b c", max_length, TruncationSide::kLeft);
  };
  EXPECT_EQ(encode(6), (Ids{2, 5, 6, 7, 3}));
  EXPECT_EQ(encode(5), (Ids{2, 5, 6, 7, 3}));
  EXPECT_EQ(encode(4), (Ids{2, 6, 7, 3}));
  EXPECT_EQ(encode(3), (Ids{2, 7, 3}));
  EXPECT_EQ(encode(2), (Ids{2, 3}));
}

TEST(TokenizerTest, NamesMissingVocabulary) {
  const auto made = MakeTokenizer("no/such/vocab.txt", {});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), Code::kNotFound);
  EXPECT_EQ(made.status().message(), "no/such/vocab.txt does not exist");
}

}  // namespace
}  // namespace troop
