#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/config/enum_names.h"

namespace troop {

using TokenId = std::int32_t;

// Ids of the special tokens; each is a piece of the vocabulary.
struct SpecialTokens {
  TokenId pad = 0, unknown = 0, begin = 0, end = 0, mask = 0;  // begin: [CLS], end: [SEP]
};

// Splits text into pieces of a vocabulary. Immutable: any thread may call it. Implementations:
// WordPiece (datasets/tokenizers/wordpiece.h) and SentencePiece's unigram model
// (datasets/tokenizers/unigram.h).
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // Appends the ids of `text`. Special tokens are neither added nor recognized: "[CLS]" in `text`
  // is plain text. Bytes that are not UTF-8 count as U+FFFD. O(bytes), except for words and runs
  // that no piece covers.
  virtual void Encode(std::string_view text, std::vector<TokenId>* ids) const = 0;
  // The text of a piece. REQUIRES: 0 <= id < size().
  virtual std::string_view piece(TokenId id) const = 0;
  // Number of pieces.
  virtual int size() const = 0;
  virtual const SpecialTokens& special() const = 0;
  // Checksum of everything that determines the ids of a text; token caches compare it.
  virtual std::uint32_t fingerprint() const = 0;
};

// Side on which a text that is too long is cut; truncation_side in Hugging Face transformers.
enum class TruncationSide : std::uint8_t { kRight, kLeft };
constexpr auto EnumNames(TruncationSide) {
  return std::to_array<std::string_view>({"right", "left"});
}

// Encodes [CLS] text [SEP] with at most `max_length` ids: the text keeps its first or last
// max_length - 2 ids. REQUIRES: max_length >= 2.
std::vector<TokenId> EncodeWithSpecialTokens(const Tokenizer& tokenizer, std::string_view text,
                                             std::size_t max_length,
                                             TruncationSide side = TruncationSide::kRight);

struct TokenizerOptions {
  bool cased = false;  // keep capitals and accents; must match the vocabulary
};
// Reads a vocabulary: a SentencePiece model if the file's name ends in .model, else a text file
// with one WordPiece per line. Errors: kNotFound; kInvalidArgument and kDataLoss with the problem
// and its position.
Result<std::unique_ptr<Tokenizer>> MakeTokenizer(const std::string& path,
                                                 const TokenizerOptions& options);

}  // namespace troop
