#include "datasets/tokenizers/unigram.h"

#include <gtest/gtest.h>

#include <string>

#include "core/storage/sha256.h"
#include "datasets/lookup/charsmap.h"
#include "datasets/tokenizers/sentencepiece_model.h"
#include "tests/datasets/data.h"

namespace troop {
namespace {

using Ids = std::vector<TokenId>;

// Fields of a protobuf message: what the files are written of.
std::string Bytes(int field, const std::string& value) {
  std::string out(1, char(field << 3 | 2));
  std::size_t size = value.size();
  for (; size >= 0x80; size >>= 7) out.push_back(char((size & 0x7F) | 0x80));
  return out + char(size) + value;
}
std::string Number(int field, int value) {  // below 128 both
  std::string key = field < 16 ? std::string(1, char(field << 3))
                               : std::string{char((field << 3 & 0x7F) | 0x80), char(field >> 4)};
  return key + char(value);
}
std::string Piece(const std::string& text, float score, int type = 1) {
  std::string bits(reinterpret_cast<const char*>(&score), 4);
  return Bytes(1, Bytes(1, text) + std::string(1, char(2 << 3 | 5)) + bits + Number(3, type));
}
// The special pieces, ids 0 to 4, and a charsmap that leaves characters as they are.
const std::string kStart = Piece("<pad>", 0, 3) + Piece("<unk>", 0, 2) + Piece("[CLS]", 0, 3) +
                           Piece("[SEP]", 0, 3) + Piece("[MASK]", 0, 3);
constexpr TokenId kUnknown = 1;

std::unique_ptr<Tokenizer> Make(const std::string& pieces) {
  auto made = MakeUnigram(kStart + pieces, {});
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return made.ok() ? std::move(*made) : nullptr;
}

// SentencePiece 0.2.3 behind ALBERT's preparation (tools/make_text_fixtures.py).
TEST(UnigramTest, MatchesSentencePieceOnSmallModel) {
  for (const bool cased : {false, true}) {
    const auto tokenizer = OpenTokenizer(TextFixture("unigram.model"), cased);
    for (const JsonValue& line : ReadJsonLines(TextFixture("samples.jsonl"))) {
      const std::string& text = line.Find("text")->string;
      EXPECT_EQ(Encode(*tokenizer, text), IdsOf(line, cased ? "albert_cased" : "albert")) << text;
    }
  }
}

// Golden ids of SentencePiece 0.1.97; these strings have no ties that 0.2.3 resolves differently.
TEST(UnigramTest, MatchesGoldenStringsOfAlbert) {
  TROOP_SKIP_WITHOUT_DATA("tokenizers/golden_albert_sample.jsonl");
  const auto tokenizer = OpenTokenizer(DataPath("tokenizers/albert-spiece.model"));
  int checked = 0;
  const std::string samples = DataPath("tokenizers/golden_albert_sample.jsonl");
  for (const JsonValue& line : ReadJsonLines(samples, R"({"text")")) {
    const std::string& text = line.Find("text")->string;
    EXPECT_EQ(EncodeWithSpecialTokens(*tokenizer, text, 10000), IdsOf(line, "ids")) << text;
    ++checked;
  }
  EXPECT_EQ(checked, 24);
}

TEST(UnigramTest, ChoosesPiecesWithLargestScoreSum) {
  const auto tokenizer =
      Make(Piece("▁", -1) + Piece("a", -1) + Piece("b", -1) + Piece("ab", -2.5f) + Piece("▁a", -3) +
           Piece("▁ab", -2) + Piece("ba", -1.5f));
  EXPECT_EQ(Encode(*tokenizer, "ab"), (Ids{10}));      // -2, and ▁ ab -3.5
  EXPECT_EQ(Encode(*tokenizer, "aba"), (Ids{10, 6}));  // -3, and ▁a ba -4.5
  EXPECT_EQ(Encode(*tokenizer, "bab"), (Ids{5, 11, 7}));
}

TEST(UnigramTest, EqualSumsResolveToFirstFound) {
  const auto tokenizer = Make(Piece("▁", 0) + Piece("a", -2) + Piece("aa", -2));
  EXPECT_EQ(Encode(*tokenizer, "aaa"), (Ids{5, 6, 7}));
}

TEST(UnigramTest, MergesRunOfUnknownCharacters) {
  const auto tokenizer = Make(Piece("▁", -1) + Piece("a", -1) + Piece("▁a", -1));
  EXPECT_EQ(Encode(*tokenizer, "xyz"), (Ids{5, kUnknown}));
  EXPECT_EQ(Encode(*tokenizer, "axаa y"), (Ids{7, kUnknown, 6, 5, kUnknown}));
}

// In f64 the path x, y has the larger sum: SentencePiece 0.1.97 chose it.
TEST(UnigramTest, SumsAreRoundedBeforeTheyAreCompared) {
  const auto tokenizer =
      Make(Piece("▁", 0) + Piece("x", -65536) + Piece("y", 0.001f) + Piece("xy", -65536));
  EXPECT_EQ(Encode(*tokenizer, "xy"), (Ids{5, 8}));
}

// A sum beyond 100,000 counts as 0 from there on; without that, -100,001 + 0.001 is rounded to a
// tie.
TEST(UnigramTest, LargeSumsAreRebased) {
  const std::string pieces = Piece("▁", 0) + Piece("x", -1) + Piece("y", 0.001f) + Piece("xy", -1);
  EXPECT_EQ(Encode(*Make(pieces + Piece("p", -99990)), "pxy"), (Ids{5, 9, 8}));
  EXPECT_EQ(Encode(*Make(pieces + Piece("p", -100001)), "pxy"), (Ids{5, 9, 6, 7}));
  EXPECT_EQ(Encode(*Make(pieces + Piece("p", 100001)), "pxy"), (Ids{5, 9, 6, 7}));
}

TEST(UnigramTest, ScoresUserDefinedPieceByItsBytes) {
  const std::string pieces = Piece("▁", 0) + Piece("--", -9, 4) + Piece("-", -9, 4);
  EXPECT_EQ(Encode(*Make(pieces), "--"), (Ids{5, 6}));
  EXPECT_EQ(Encode(*Make(pieces + Piece("▁--", 0.09f)), "--"), (Ids{5, 6}));
  EXPECT_EQ(Encode(*Make(pieces + Piece("▁--", 0.11f)), "--"), (Ids{8}));
  EXPECT_EQ(Encode(*Make(pieces + Piece("▁-", -0.01f)), "-"), (Ids{5, 7}));
}

// SentencePiece 0.2.3 on a text whose sum of scores passes 100,000 several times.
TEST(UnigramTest, MatchesSentencePieceOnLongText) {
  const auto tokenizer = OpenTokenizer(TextFixture("unigram.model"));
  int samples = 0;
  for (const JsonValue& line : ReadJsonLines(TextFixture("long_samples.jsonl"))) {
    std::string text;
    for (int i = 0; i < *line.Find("repeat")->integer; ++i) text += line.Find("text")->string;
    const Ids ids = Encode(*tokenizer, text);
    EXPECT_EQ(std::int64_t(ids.size()), *line.Find("ids")->integer);
    const std::string_view bytes(reinterpret_cast<const char*>(ids.data()), ids.size() * 4);
    EXPECT_EQ(Sha256Hex(bytes), line.Find("sha256")->string) << line.Find("text")->string;
    ++samples;
  }
  EXPECT_EQ(samples, 3);
}

TEST(UnigramTest, SkipsUnusedPieces) {
  const auto tokenizer = Make(Piece("▁", -1) + Piece("a", -1) + Piece("▁a", 0, 5));
  EXPECT_EQ(Encode(*tokenizer, "a"), (Ids{5, 6}));
}

TEST(UnigramTest, SplitsTrailingCommaFromNumber) {
  const auto tokenizer = Make(Piece("▁", -1) + Piece("▁1,", -1) + Piece("1,", -1) + Piece("1", -3) +
                              Piece(",", -3) + Piece("▁1", -3));
  EXPECT_EQ(Encode(*tokenizer, "1,1,"), (Ids{10, 9, 8, 9}));
}

TEST(UnigramTest, NormalizesTextAsAlbert) {
  EXPECT_EQ(PrepareForAlbert("  A \t b\r\n", false), "a b");
  EXPECT_EQ(PrepareForAlbert("``a'' ''' `", false), "\"a\" \"' `");
  EXPECT_EQ(PrepareForAlbert("ÀÉ\u00A0ﬁ\u2028½", false), "ae fi 1⁄2");
  EXPECT_EQ(PrepareForAlbert("  À\u3000B ", true), "À B");
  EXPECT_EQ(PrepareForAlbert("\x1C\u0085", false), "");
}

TEST(UnigramTest, RejectsInvalidModel) {
  const auto message = [](const std::string& model) {
    const auto made = MakeUnigram(model, {});
    return made.ok() ? "accepted" : made.status().message();
  };
  const std::string damaged = "not a SentencePiece model, or a damaged one: ";
  EXPECT_EQ(message(""), damaged + "it has no pieces");
  EXPECT_EQ(message(kStart.substr(0, kStart.size() - 1)),
            damaged + "a field of 15 bytes where 14 are left");
  EXPECT_EQ(message("\xFF"), damaged + "a number that is cut off");
  EXPECT_EQ(message(kStart + Piece("", 0)), damaged + "a piece without text");
  EXPECT_EQ(message(kStart + Piece("a", NAN)), damaged + "a piece whose score is not finite");
  EXPECT_EQ(message(kStart + Piece("a", 0, 9)), damaged + "a piece of type 9");
  EXPECT_EQ(message(kStart + Bytes(2, Number(3, 2))),
            "it is a model of BPE; only unigram models are supported");
  EXPECT_EQ(message(kStart + Bytes(2, Number(35, 1))), "byte fallback is not supported");
  EXPECT_EQ(message(Piece("<unk>", 0, 2)), "it has no piece <pad>; it is not a model of ALBERT");
  EXPECT_EQ(message(kStart + Piece("a", 0) + Piece("a", 0)), "pieces 5 and 6 are equal: \"a\"");
  EXPECT_EQ(message(kStart + Bytes(3, Bytes(2, "ab"))), "a character map of 2 bytes");
}

// Each byte of the small model changed: refused, or a tokenizer that stays inside its tables.
TEST(UnigramTest, DamagedModelStaysWithinBounds) {
  const std::string sound = ReadAll(TextFixture("unigram.model"));
  const std::string text = "ﬁne ½ e\u0301 A\u030A tab\t… (1,990) \xFF";
  int accepted = 0;
  for (std::size_t i = 0; i < sound.size(); i += 101) {
    std::string bytes = sound;
    bytes[i] = char(~bytes[i]);
    const auto made = MakeUnigram(bytes, {});
    if (!made.ok()) continue;
    ++accepted;
    for (const TokenId id : Encode(**made, text)) {
      ASSERT_TRUE(id >= 0 && id < (*made)->size()) << i;
    }
  }
  EXPECT_GT(accepted, 10);
}

}  // namespace
}  // namespace troop
