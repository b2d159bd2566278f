// Hostile vocabularies and texts. The first byte says whether a vocabulary of WordPieces, a
// SentencePiece model, a tokenizer.json or a vocab.json comes next; then come its size (16 bits),
// it, and a text. merges.txt follows the vocab.json after a zero byte; an empty vocab.json is one
// with the pieces of all bytes. What is accepted gives ids inside the vocabulary, of any text, and
// equal ones of equal text.
#include <algorithm>
#include <string>

#include "core/base/check.h"
#include "core/storage/json.h"
#include "datasets/tokenizers/byte_level_bpe.h"
#include "datasets/tokenizers/tokenizer_json.h"
#include "datasets/tokenizers/unicode.h"
#include "datasets/tokenizers/unigram.h"
#include "datasets/tokenizers/wordpiece.h"
#include "tests/fuzz/fuzz.h"

namespace troop {
namespace {

const std::string kSpecial = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";

// A vocab.json of all bytes, some longer pieces and the special tokens.
std::string ByteVocabulary() {
  JsonObject json;
  int id = 0;
  for (const char* const piece :
       {"<s>", "</s>", "<pad>", "<unk>", "<mask>", "ab", "bc", "abc", "cc", "abcc", "\u0120a"}) {
    json.Add(piece, id++);
  }
  char32_t next = 0x100;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    const char32_t c = printable ? byte : next++;
    json.Add(ToUtf8({&c, 1}), id++);
  }
  return json.str();
}

// Makes the tokenizer that the bits of `kind` choose.
Result<std::unique_ptr<Tokenizer>> MakeOf(std::uint8_t kind, const std::string& vocabulary) {
  const TokenizerOptions options = {.cased = (kind & 2) != 0};
  if (kind & 4) return MakeTokenizerJson(vocabulary, {});
  if (kind & 8) {
    const std::size_t end = std::min(vocabulary.find('\0'), vocabulary.size());
    const std::string merges = vocabulary.substr(std::min(end + 1, vocabulary.size()));
    const std::string json = end == 0 ? ByteVocabulary() : vocabulary.substr(0, end);
    return MakeByteLevelBpe(json, merges, {.add_prefix_space = (kind & 2) != 0});
  }
  return kind & 1 ? MakeUnigram(vocabulary, options) : MakeWordPiece(vocabulary, options);
}

// factor: bound of the characters that one byte of the text becomes.
void CheckTokens(const Tokenizer& tokenizer, std::string_view text, std::size_t factor) {
  std::vector<TokenId> ids, again;
  tokenizer.Encode(text, &ids);
  tokenizer.Encode(text, &again);
  TROOP_CHECK(ids == again, "other ids the second time");
  // Decomposing makes at most 18 characters of one (U+FDFA), each a token at most.
  TROOP_CHECK(ids.size() <= factor * text.size() + 1, "{} tokens of {} bytes", ids.size(),
              text.size());
  for (const TokenId id : ids) {
    TROOP_CHECK(id >= 0 && id < tokenizer.size(), "token {} of {}", id, tokenizer.size());
    TROOP_CHECK(!tokenizer.piece(id).empty(), "token {} is empty", id);
  }
}

std::string Seed(char kind, const std::string& vocabulary, const std::string& text) {
  const auto size = std::uint16_t(vocabulary.size());
  return std::string(1, kind) + std::string(reinterpret_cast<const char*>(&size), sizeof size) +
         vocabulary + text;
}

// A field of bytes, shorter than 128, of a protobuf message.
std::string Bytes(int field, const std::string& value) {
  return std::string{char(field << 3 | 2), char(value.size())} + value;
}
std::string Piece(const std::string& text, char type, float score) {
  return Bytes(1, Bytes(1, text) + "\x15" +
                      std::string(reinterpret_cast<const char*>(&score), sizeof score) + "\x18" +
                      type);
}

}  // namespace

void VisitSeeds(const SeedWriter& write) {
  write("words", Seed('\0', kSpecial + "a\n##b\n中\n!\n", "Ab! 中\u00E1\u0301 \xFF"));
  write("cased", Seed('\2', kSpecial + "A\n##b\nΣ\n", "Ab ΑΣ \u200B\u2028Σ"));
  const std::string pieces = Piece("<pad>", 3, 0) + Piece("<unk>", 2, 0) + Piece("[CLS]", 3, 0) +
                             Piece("[SEP]", 3, 0) + Piece("[MASK]", 3, 0) + Piece("▁", 1, -1) +
                             Piece("▁1,", 1, -2) + Piece("1", 1, -3) + Piece(",", 1, -3) +
                             Piece("-", 4, 0);
  write("pieces", Seed('\1', pieces, "1, 1,-\u00BD ''x"));
  write("merges", Seed('\x0A', std::string("\0a b\nb c\nab c\nc c\nab cc\n", 23),
                       "abcc cab's  don't\n12\u00E9 \xFF"));
  const std::string post = R"("post_processor":{"type":"BertProcessing","cls":["[CLS]",2],)"
                           R"("sep":["[SEP]",3]},)";
  const std::string words = R"("vocab":{"[PAD]":0,"[UNK]":1,"[CLS]":2,"[SEP]":3,"[MASK]":4,)";
  write("json_words",
        Seed('\4',
             R"({"normalizer":{"type":"BertNormalizer"},"pre_tokenizer":{"type":)"
             R"("BertPreTokenizer"},)" +
                 post + R"("model":{"type":"WordPiece",)" + words + R"("a":5,"##b":6}}})",
             "Ab \u00C5 \u0378"));
  write("json_pieces",
        Seed('\4',
             R"({"normalizer":{"type":"Sequence","normalizers":[{"type":"NFKC"},{"type":"Replace",)"
             R"("pattern":{"Regex":" {2,}"},"content":" "},{"type":"StripAccents"}]},)"
             R"("pre_tokenizer":{"type":"Metaspace"},)" +
                 post +
                 R"("model":{"type":"Unigram","unk_id":1,"vocab":[["[PAD]",0],["[UNK]",0],)"
                 R"(["[CLS]",0],["[SEP]",0],["[MASK]",0],["\u2581",-1],["\u2581a",-2],["b",-3]]}})",
             "a  ab \u00C5\uFB01 \xFF"));
  // A map of characters: the index of one unit, and a replacement.
  const std::string map("\4\0\0\0\0\0\0\0a\0", 10);
  write("charsmap", Seed('\3', pieces + Bytes(3, Bytes(2, map)), "a1\u00C5"));
}

}  // namespace troop

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troop;
  FuzzInput input(data, size);
  const auto kind = input.Take<std::uint8_t>();
  const std::string vocabulary = StringOf(input.TakeBytes(input.Take<std::uint16_t>()));
  const auto tokenizer = MakeOf(kind, vocabulary);
  if (tokenizer.ok()) {
    // A tokenizer.json may replace a character by others, 64 for each at most, and by its map.
    CheckTokens(**tokenizer, TextOf(input.TakeRest()), kind & 4 ? 1 << 22 : 18);
  } else {
    TROOP_CHECK(!tokenizer.status().message().empty(), "no reason is given");
  }
  return 0;
}
