#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/status.h"
#include "core/storage.h"
#include "text/token_set.h"

namespace troop {

// What the tokens of a file were made of: another of these, other tokens.
struct TokenCacheKey {
  std::uint32_t tokenizer = 0;  // Tokenizer::fingerprint
  std::int32_t vocabulary = 0;  // Tokenizer::size: ids are below it
  std::int32_t tokens_max = 0;
  TruncationSide side = TruncationSide::kRight;
  std::uint64_t source = 0;  // SourceFingerprint
  bool operator==(const TokenCacheKey&) const = default;
};

// Of an archive or a table: its bytes. Of a folder: names, sizes and times of change of the files.
// Errors: as those of ReadReviews.
Result<std::uint64_t> SourceFingerprint(const std::string& path);

// A file of tokens: header with key and counts, lengths, sentiments, ids, and a CRC-32C of it all.
std::string EncodeTokenCache(const TokenizedReviews& reviews, const TokenCacheKey& key);
// Errors: kDataLoss where it is damaged; kFailedPrecondition where it is of another key or version.
Result<TokenizedReviews> DecodeTokenCache(std::string_view bytes, const TokenCacheKey& key);

// The reviews of `reviews_path` as tokens: from the file `cache_path` of `storage` where it holds
// just these, or else made anew and written there. A cache that can't be read or written costs time
// and a line of the log, never the run. storage: nullptr: no cache. Blocks on the disk. Errors:
// those of ReadReviews.
Result<TokenizedReviews> LoadTokenizedReviews(const std::string& reviews_path,
                                              const Tokenizer& tokenizer, std::int32_t tokens_max,
                                              Storage* storage, const std::string& cache_path,
                                              TruncationSide side = TruncationSide::kRight);

}  // namespace troop
