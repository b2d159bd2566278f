#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace troop {

using TokenId = std::int32_t;

// What models need by name. Each is a piece of the vocabulary.
struct SpecialTokens {
  TokenId pad = 0, unknown = 0, begin = 0, end = 0, mask = 0;  // begin: [CLS], end: [SEP]
};

// Cuts text into the pieces of a vocabulary. Immutable: any thread may call it. Two
// implementations: WordPiece (text/wordpiece.h), SentencePiece's unigram model (text/unigram.h).
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // Appends the ids of `text`, without special tokens: what looks like one is text. Bytes that are
  // no UTF-8 count as U+FFFD. O(bytes), but for words and runs that fit no piece.
  virtual void Encode(std::string_view text, std::vector<TokenId>* ids) const = 0;
  // The text of a piece. REQUIRES: 0 <= id < size().
  virtual std::string_view piece(TokenId id) const = 0;
  virtual int size() const = 0;
  virtual const SpecialTokens& special() const = 0;
  // Of all that decides which ids a text gets: caches compare it.
  virtual std::uint32_t fingerprint() const = 0;
};

// Of a text that is too long: what is cut off. The package transformers calls it truncation_side.
enum class TruncationSide : std::uint8_t { kRight, kLeft };

// [CLS] text [SEP], cut to `tokens_max` in all: the text's first or last tokens_max - 2 ids stay.
// REQUIRES: tokens_max >= 2.
std::vector<TokenId> EncodeWithEnds(const Tokenizer& tokenizer, std::string_view text,
                                    std::size_t tokens_max,
                                    TruncationSide side = TruncationSide::kRight);

struct TokenizerOptions {
  bool cased = false;  // keep capitals and accents: as the vocabulary was made
};
// Reads a vocabulary: a SentencePiece model where the file's name ends in .model, or else a text
// file of WordPieces, one a line. Errors: kNotFound; kInvalidArgument and kDataLoss say what is
// wrong with it and where.
Result<std::unique_ptr<Tokenizer>> MakeTokenizer(const std::string& path,
                                                 const TokenizerOptions& options);

}  // namespace troop
