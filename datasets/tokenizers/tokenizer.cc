// Common parts of the tokenizers: special tokens at the ends, truncation, and the factory.

#include "datasets/tokenizers/tokenizer.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/storage/read_file.h"
#include "datasets/tokenizers/unigram.h"
#include "datasets/tokenizers/wordpiece.h"

namespace troop {
namespace {
constexpr std::size_t kVocabularyBytesMax = std::size_t{256} << 20;  // real ones: about 1 MiB
}  // namespace

// Encodes as [CLS] text [SEP]; truncation never removes these two.
std::vector<TokenId> EncodeWithSpecialTokens(const Tokenizer& tokenizer, std::string_view text,
                                             std::size_t max_length, TruncationSide side) {
  TROOP_CHECK(max_length >= 2, "max_length is {}, must be at least 2", max_length);
  std::vector<TokenId> ids = {tokenizer.special().begin};
  tokenizer.Encode(text, &ids);
  // ids[0] is [CLS]: drop the ids after it until max_length - 2 are left.
  if (side == TruncationSide::kLeft && ids.size() > max_length - 1) {
    ids.erase(ids.begin() + 1, ids.end() - std::ptrdiff_t(max_length - 2));
  }
  // One id is reserved for the end token.
  ids.resize(std::min(ids.size(), max_length - 1));
  ids.push_back(tokenizer.special().end);
  return ids;
}

Result<std::unique_ptr<Tokenizer>> MakeTokenizer(const std::string& path,
                                                 const TokenizerOptions& options) {
  TROOP_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path, kVocabularyBytesMax));
  // The file's suffix decides the kind of vocabulary.
  Result<std::unique_ptr<Tokenizer>> made =
      path.ends_with(".model") ? MakeUnigram(bytes, options) : MakeWordPiece(bytes, options);
  if (!made.ok()) return made.status().WithContext(path);
  return made;
}

}  // namespace troop
