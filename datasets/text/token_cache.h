#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/status.h"
#include "core/storage/storage.h"
#include "datasets/text/tokenized_dataset.h"

namespace troop {

// Key of a token cache: everything that determines the tokens of a file.
struct TokenCacheKey {
  std::uint32_t tokenizer = 0;  // Tokenizer::fingerprint
  std::int32_t vocabulary = 0;  // Tokenizer::size: ids must be below it
  std::int32_t max_length = 0;
  TruncationSide side = TruncationSide::kRight;
  std::uint64_t source = 0;  // SourceFingerprint
  bool operator==(const TokenCacheKey&) const = default;
};

// Fingerprint of the source: for an archive or a .csv of its bytes; for a folder of the files'
// names, sizes and modification times. Errors: those of ReadReviews.
Result<std::uint64_t> SourceFingerprint(const std::string& path);

// Encodes a token cache: header with key and counts, lengths, sentiments, ids, and a CRC-32C of
// all.
std::string EncodeTokenCache(const TokenizedReviews& reviews, const TokenCacheKey& key);
// Decodes a token cache. Errors: kDataLoss if it is damaged; kFailedPrecondition if its key or
// version differs.
Result<TokenizedReviews> DecodeTokenCache(std::string_view bytes, const TokenCacheKey& key);

// Returns the tokenized reviews of `reviews_path`: from the file `cache_path` of `storage` if its
// key matches, else tokenized now and written there. A cache that cannot be read or written costs
// time and a log line, but is not an error. storage: nullptr: no cache. Blocks on the disk. Errors:
// those of ReadReviews.
Result<TokenizedReviews> LoadTokenizedReviews(const std::string& reviews_path,
                                              const Tokenizer& tokenizer, std::int32_t max_length,
                                              Storage* storage, const std::string& cache_path,
                                              TruncationSide side = TruncationSide::kRight);

}  // namespace troop
