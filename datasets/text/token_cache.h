#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/storage/storage.h"
#include "datasets/text/text_sources.h"
#include "datasets/text/tokenized_dataset.h"

namespace troop {

// Key of a token cache: everything that determines the tokens of a file.
struct TokenCacheKey {
  std::uint32_t tokenizer = 0;  // Tokenizer::fingerprint
  std::int32_t vocabulary = 0;  // Tokenizer::size: ids must be below it
  std::int32_t max_length = 0;
  TruncationSide side = TruncationSide::kRight;
  std::uint64_t source = 0;          // SourcesFingerprint
  std::vector<std::string> names{};  // TextSources::names; empty: learned
  bool operator==(const TokenCacheKey&) const = default;
};

// Encodes a token cache: header with key and counts, names of the classes, the sets (lengths,
// labels, second segments, ids, targets), and a CRC-32C of all.
std::string EncodeTokenCache(const TokenizedTexts& texts, const TokenCacheKey& key);
// Decodes a token cache. Errors: kDataLoss if it is damaged; kFailedPrecondition if its key or
// version differs.
Result<TokenizedTexts> DecodeTokenCache(std::string_view bytes, const TokenCacheKey& key);

// A file for cached tokens. storage: nullptr: no cache.
struct TokenCacheFile {
  Storage* storage = nullptr;
  std::string path;
};

// Returns the tokenized texts of `sources`: from the cache if its key matches, else tokenized now
// and written there. A cache that cannot be read or written costs time and a log line, but is not
// an error. Blocks on the disk. Errors: those of TokenizeSources.
Result<TokenizedTexts> LoadTokenizedTexts(const TextSources& sources, const Tokenizer& tokenizer,
                                          const TokenizationOptions& options,
                                          const TokenCacheFile& cache);

}  // namespace troop
