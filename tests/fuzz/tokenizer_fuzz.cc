// Hostile vocabularies and texts. The first byte says whether a vocabulary of WordPieces or a
// SentencePiece model comes next; then come its size (16 bits), it, and a text. What is accepted
// gives ids inside the vocabulary, of any text, and equal ones of equal text.
#include <string>

#include "core/base/check.h"
#include "datasets/tokenizers/unigram.h"
#include "datasets/tokenizers/wordpiece.h"
#include "tests/fuzz/fuzz.h"

namespace troop {
namespace {

const std::string kSpecial = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";

void CheckTokens(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<TokenId> ids, again;
  tokenizer.Encode(text, &ids);
  tokenizer.Encode(text, &again);
  TROOP_CHECK(ids == again, "other ids the second time");
  // Decomposing makes at most 18 characters of one (U+FDFA), each a token at most.
  TROOP_CHECK(ids.size() <= 18 * text.size() + 1, "{} tokens of {} bytes", ids.size(), text.size());
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
  const TokenizerOptions options = {.cased = (kind & 2) != 0};
  const auto tokenizer =
      kind & 1 ? MakeUnigram(vocabulary, options) : MakeWordPiece(vocabulary, options);
  if (tokenizer.ok()) {
    CheckTokens(**tokenizer, TextOf(input.TakeRest()));
  } else {
    TROOP_CHECK(!tokenizer.status().message().empty(), "no reason is given");
  }
  return 0;
}
