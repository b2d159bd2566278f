#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/config/enum_names.h"

namespace troop {

using TokenId = std::int32_t;
struct AddedToken;  // datasets/tokenizers/added_tokens.h

// Ids of the special tokens; each is a piece of the vocabulary.
struct SpecialTokens {
  TokenId pad = 0, unknown = 0, begin = 0, end = 0, mask = 0;  // begin: [CLS], end: [SEP]
};

// Sequence of two texts: begin A end … B end, with one or two end tokens between the texts.
struct PairFormat {
  int separators = 1;            // 1: [CLS] A [SEP] B [SEP] (BERT); 2: <s> A </s></s> B </s>
  std::int32_t second_type = 1;  // token type of B and of the end token after it
  bool operator==(const PairFormat&) const = default;
};

// Splits text into pieces of a vocabulary. Immutable: any thread may call it. Implementations:
// WordPiece (datasets/tokenizers/wordpiece.h), SentencePiece's unigram model
// (datasets/tokenizers/unigram.h), byte-level BPE (datasets/tokenizers/byte_level_bpe.h), and the
// unigram model of tokenizer.json (datasets/tokenizers/unigram_json.h).
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
  // Format of two texts; BERT's unless the vocabulary has another one.
  virtual PairFormat pair_format() const { return {}; }
  // The added token with that text, which is found in texts before the model; nullptr: there is
  // none.
  virtual const AddedToken* FindAdded(std::string_view) const { return nullptr; }
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

// Token ids of two texts, and the token type of each id: 0 for the first text and the end tokens
// up to the second text, PairFormat::second_type from there.
struct EncodedPair {
  std::vector<TokenId> ids;
  std::vector<std::int32_t> types;  // as many as ids
  std::size_t truncated = 0;        // ids of the texts that were removed
  // First id of the second text if its type is another one; else 0.
  std::int32_t second = 0;
};
// Encodes two texts in the tokenizer's PairFormat with at most `max_length` ids. Truncation is
// "longest_first" of transformers 5 (Hugging Face's tokenizers): ids are removed from the longer
// text on its `side` until both fit; if both exceed half of the room, each keeps half of it, and an
// odd id belongs to the longer text (the second one if they are equally long). REQUIRES: max_length
// >= 2 + pair_format().separators.
EncodedPair EncodePair(const Tokenizer& tokenizer, std::string_view first, std::string_view second,
                       std::size_t max_length, TruncationSide side = TruncationSide::kRight);
// EncodePair of texts that are ids already, which are modified. REQUIRES: as EncodePair.
EncodedPair JoinPair(const Tokenizer& tokenizer, std::array<std::vector<TokenId>, 2> texts,
                     std::size_t max_length, TruncationSide side);

struct TokenizerOptions {
  // Keep capitals and accents; must match the vocabulary. Only of a SentencePiece model or a text
  // file of WordPieces: the other files determine it.
  bool cased = false;
  // The setting of tokenizer_config.json, if there is one: byte-level BPE encodes a first word with
  // a space before it. A tokenizer.json must agree.
  std::optional<bool> add_prefix_space;
  // "do_lower_case" of tokenizer_config.json, if there is one, with which a tokenizer.json must
  // agree.
  std::optional<bool> lowercase;
};
// Reads a vocabulary; the file's name decides its kind:
//   *.model         SentencePiece model
//   tokenizer.json  file of Hugging Face's tokenizers (datasets/tokenizers/tokenizer_json.h)
//   vocab.json      byte-level BPE, with merges.txt in the same folder
//   others          text file with one WordPiece per line
// Ids follow the slow tokenizers of transformers, except for tokenizer.json, which follows the fast
// ones. Errors: kNotFound; kInvalidArgument and kDataLoss with the problem and its position.
Result<std::unique_ptr<Tokenizer>> MakeTokenizer(const std::string& path,
                                                 const TokenizerOptions& options);

// Kinds of vocabularies by the names of their files.
enum class VocabularyKind : std::uint8_t { kWordPiece, kSentencePiece, kTokenizerJson, kBpe };
VocabularyKind VocabularyKindOf(std::string_view path);
// True if TokenizerOptions::cased applies to the kind; the JSON files determine the case.
constexpr bool HasCaseOption(VocabularyKind kind) {
  return kind == VocabularyKind::kWordPiece || kind == VocabularyKind::kSentencePiece;
}

}  // namespace troop
