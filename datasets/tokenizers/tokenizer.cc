// Common parts of the tokenizers: special tokens at the ends, truncation, and the factory.

#include "datasets/tokenizers/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "core/base/check.h"
#include "core/storage/read_file.h"
#include "datasets/tokenizers/byte_level_bpe.h"
#include "datasets/tokenizers/tokenizer_json.h"
#include "datasets/tokenizers/unigram.h"
#include "datasets/tokenizers/wordpiece.h"

namespace troop {
namespace {
constexpr std::size_t kVocabularyBytesMax = std::size_t{256} << 20;  // real ones: about 1 MiB

// Numbers of ids that two texts keep in `room` ids: truncate_encodings of Hugging Face's
// tokenizers. transformers' loop over single ids gives an odd id to the first text instead.
std::pair<std::size_t, std::size_t> LongestFirst(std::size_t first, std::size_t second,
                                                 std::size_t room) {
  if (first + second <= room) return {first, second};
  const bool swapped = first > second;
  std::size_t shorter = std::min(first, second);
  std::size_t longer = room - std::min(shorter, room);
  // If the shorter text exceeds half of the room, both get half of it.
  if (longer < shorter) {
    shorter = room / 2;
    longer = room - shorter;
  }
  return swapped ? std::pair(longer, shorter) : std::pair(shorter, longer);
}

// Keeps `kept` ids on the side that is not cut.
void Truncate(std::size_t kept, TruncationSide side, std::vector<TokenId>* ids) {
  if (side == TruncationSide::kLeft) ids->erase(ids->begin(), ids->end() - std::ptrdiff_t(kept));
  ids->resize(kept);
}

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

// Both texts are encoded completely, because the shorter one leaves its room to the other.
EncodedPair EncodePair(const Tokenizer& tokenizer, std::string_view first, std::string_view second,
                       std::size_t max_length, TruncationSide side) {
  std::array<std::vector<TokenId>, 2> texts;
  tokenizer.Encode(first, &texts[0]);
  tokenizer.Encode(second, &texts[1]);
  return JoinPair(tokenizer, std::move(texts), max_length, side);
}

EncodedPair JoinPair(const Tokenizer& tokenizer, std::array<std::vector<TokenId>, 2> texts,
                     std::size_t max_length, TruncationSide side) {
  const PairFormat format = tokenizer.pair_format();
  const std::size_t added = 2 + std::size_t(format.separators);
  TROOP_CHECK(max_length >= added, "max_length is {}, must be at least {}", max_length, added);
  const std::size_t all = texts[0].size() + texts[1].size();
  const auto [kept_first, kept_second] =
      LongestFirst(texts[0].size(), texts[1].size(), max_length - added);
  Truncate(kept_first, side, &texts[0]);
  Truncate(kept_second, side, &texts[1]);
  // The end tokens between the texts have the type of the first one.
  EncodedPair pair{
      .ids = {tokenizer.special().begin}, .types = {}, .truncated = all - kept_first - kept_second};
  pair.ids.insert(pair.ids.end(), texts[0].begin(), texts[0].end());
  pair.ids.insert(pair.ids.end(), std::size_t(format.separators), tokenizer.special().end);
  pair.types.resize(pair.ids.size(), 0);
  if (format.second_type != 0) pair.second = std::int32_t(pair.ids.size());
  pair.ids.insert(pair.ids.end(), texts[1].begin(), texts[1].end());
  pair.ids.push_back(tokenizer.special().end);
  pair.types.resize(pair.ids.size(), format.second_type);
  return pair;
}

// Names that transformers gives; other files are lists of WordPieces, as they always were.
VocabularyKind VocabularyKindOf(std::string_view path) {
  const std::string name = std::filesystem::path(path).filename().string();
  if (name == "tokenizer.json") return VocabularyKind::kTokenizerJson;
  if (name == "vocab.json") return VocabularyKind::kBpe;
  return name.ends_with(".model") ? VocabularyKind::kSentencePiece : VocabularyKind::kWordPiece;
}

Result<std::unique_ptr<Tokenizer>> MakeTokenizer(const std::string& path,
                                                 const TokenizerOptions& options) {
  TROOP_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path, kVocabularyBytesMax));
  const VocabularyKind kind = VocabularyKindOf(path);
  if (options.cased && !HasCaseOption(kind)) {
    return InvalidArgument(
        "{} determines whether case is kept; leave data.cased (--cased) at false", path);
  }
  Result<std::unique_ptr<Tokenizer>> made = [&]() -> Result<std::unique_ptr<Tokenizer>> {
    switch (kind) {
      case VocabularyKind::kSentencePiece:
        return MakeUnigram(bytes, options);
      case VocabularyKind::kTokenizerJson:
        return MakeTokenizerJson(bytes, options);
      // The only kind with a second file.
      case VocabularyKind::kBpe: {
        const auto merges = std::filesystem::path(path).parent_path() / "merges.txt";
        TROOP_ASSIGN_OR_RETURN(const std::string lines,
                               ReadFile(merges.string(), kVocabularyBytesMax));
        return MakeByteLevelBpe(bytes, lines, options);
      }
      case VocabularyKind::kWordPiece:
        break;
    }
    return MakeWordPiece(bytes, options);
  }();
  if (!made.ok()) return made.status().WithContext(path);
  return made;
}

}  // namespace troop
