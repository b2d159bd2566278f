// File format of cached tokens, and the decision whether a cached file can be used.

#include "datasets/text/token_cache.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/base/log.h"
#include "core/base/phase_progress.h"
#include "core/storage/crc32c.h"
#include "core/storage/read_file.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

constexpr std::array<char, 8> kMagic = {'T', 'r', 'o', 'o', 'p', 'T', 'o', 'k'};
// Increase it with every change of the format; other versions are tokenized again.
constexpr std::uint32_t kVersion = 1;
// Larger caches and sources are not read.
constexpr std::size_t kBytesMax = std::size_t{8} << 30;
constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kProgressBytes = 16 * kMiB;

// Sizes of one set: the number of its samples, and of the tokens of all samples.
struct Counts {
  std::uint64_t samples, tokens;
};
// Header of the file. Little-endian, like all supported machines.
struct Header {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t tokenizer;
  std::int32_t vocabulary;
  std::int32_t max_length;  // negative: texts were cut on the left
  std::uint64_t source;
  std::array<Counts, 3> counts;  // train, test, unlabeled
};
// No padding: its bytes would be indeterminate, and the checksum covers the header.
static_assert(std::has_unique_object_representations_v<Header>);

template <class T>
void AppendBytes(std::span<const T> values, std::string* out) {
  out->append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

// Copies the first values.size_bytes() bytes and removes them. REQUIRES: `bytes` has that many.
template <class T>
void TakeBytes(std::string_view* bytes, std::span<T> values) {
  if (values.empty()) return;
  std::memcpy(values.data(), bytes->data(), values.size_bytes());
  bytes->remove_prefix(values.size_bytes());
}

// Encodes the truncation side in the sign, because it changes the tokens as the length does.
std::int32_t TokensMaxOf(const TokenCacheKey& key) {
  return key.side == TruncationSide::kLeft ? -key.max_length : key.max_length;
}

// Size of an encoded set, or kBytesMax if its counts are out of range, so that no sum overflows.
std::uint64_t BytesOf(const Counts& counts) {
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint32_t>::max();
  if (counts.samples > kMax || counts.tokens > kMax) return kBytesMax;
  // A sample takes its length and one byte of sentiment.
  return counts.samples * (sizeof(std::int32_t) + 1) + counts.tokens * sizeof(TokenId);
}

// Appends lengths, sentiments and ids, in the order in which DecodeSet reads them.
void EncodeSet(const TokenizedDataset& set, std::string* out) {
  std::vector<std::int32_t> lengths;
  for (std::int64_t i = 0; i < set.size(); ++i) lengths.push_back(set.length(i));
  AppendBytes<std::int32_t>(lengths, out);
  AppendBytes<Sentiment>(set.sentiments, out);
  AppendBytes<TokenId>(set.ids, out);
}

// Checksum in parts, so that progress is shown for caches of gigabytes.
std::uint32_t ChecksumOf(std::string_view bytes) {
  PhaseProgress progress("verifying cached tokens", "MiB", std::int64_t(bytes.size() / kMiB));
  std::uint32_t crc = 0;
  for (std::size_t done = 0; done < bytes.size(); done += kProgressBytes) {
    crc = Crc32c(std::as_bytes(std::span(bytes.substr(done, kProgressBytes))), crc);
    progress.Show(std::int64_t(done / kMiB));
  }
  return crc;
}

// Reads one set and checks every value: a valid checksum does not exclude a faulty writer.
// REQUIRES: `bytes` has at least BytesOf(counts) bytes.
Result<TokenizedDataset> DecodeSet(const Counts& counts, const TokenCacheKey& key,
                                   std::string_view* bytes) {
  TokenizedDataset set;
  std::vector<std::int32_t> lengths(counts.samples);
  TakeBytes<std::int32_t>(bytes, lengths);
  set.sentiments.resize(counts.samples);
  TakeBytes<Sentiment>(bytes, set.sentiments);
  set.ids.resize(counts.tokens);
  TakeBytes<TokenId>(bytes, set.ids);
  for (const std::int32_t length : lengths) {
    if (length < 0 || length > key.max_length)
      return DataLoss("a sample has {} tokens, must have at most {}", length, key.max_length);
    // Lengths are stored instead of begins: half the size, and always increasing.
    set.begins.push_back(set.begins.back() + length);
  }
  if (std::uint64_t(set.begins.back()) != counts.tokens) {
    return DataLoss("the samples have {} tokens, the header says {}", set.begins.back(),
                    counts.tokens);
  }
  for (const Sentiment sentiment : set.sentiments) {
    if (sentiment < Sentiment::kNone || sentiment > Sentiment::kPositive) {
      return DataLoss("invalid sentiment {}", int(sentiment));
    }
  }
  for (const TokenId id : set.ids) {
    if (id < 0 || id >= key.vocabulary)
      return DataLoss("token id {} is outside a vocabulary of {}", id, key.vocabulary);
  }
  return set;
}

// Combines name and state of a file into a running CRC-32C.
std::uint64_t Mix(std::string_view text, std::uint64_t number, std::uint32_t before) {
  const std::uint32_t crc = Crc32c(std::as_bytes(std::span(text)), before);
  return Crc32c(std::as_bytes(std::span(&number, 1)), crc);
}

// Covers names, sizes and times of change; reading 100,000 files would take longer than the cache
// saves.
Result<std::uint64_t> FolderFingerprint(const std::string& path) {
  std::vector<std::pair<std::string, std::uint64_t>> files;
  std::error_code error;
  for (fs::recursive_directory_iterator it(path, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code gone;
    if (!it->is_regular_file(gone)) continue;
    const auto changed = it->last_write_time(gone).time_since_epoch().count();
    files.push_back({it->path().generic_string(), it->file_size(gone) ^ std::uint64_t(changed)});
  }
  if (error) return Unavailable("{}: can't list the folder: {}", path, error.message());
  // The order of directory entries depends on the file system.
  std::sort(files.begin(), files.end());
  std::uint64_t mixed = 0;
  for (const auto& [name, state] : files) mixed = Mix(name, state, std::uint32_t(mixed));
  // High half: checksum. Low half: number of files.
  return mixed << 32 | std::uint32_t(files.size());
}

}  // namespace

// A single file is read completely, so that a copy with another time keeps its cache.
Result<std::uint64_t> SourceFingerprint(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return FolderFingerprint(path);
  if (!IsReviewFile(path)) return InvalidArgument("{} is not a .tar.xz or .csv file", path);
  TROOP_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path, kBytesMax));
  return std::uint64_t(Crc32c(std::as_bytes(std::span(bytes)))) << 32 | std::uint32_t(bytes.size());
}

// Layout: header, the three sets, CRC-32C of everything before it.
std::string EncodeTokenCache(const TokenizedReviews& reviews, const TokenCacheKey& key) {
  Header header = {.magic = kMagic,
                   .version = kVersion,
                   .tokenizer = key.tokenizer,
                   .vocabulary = key.vocabulary,
                   .max_length = TokensMaxOf(key),
                   .source = key.source};
  const TokenizedDataset* const sets[] = {&reviews.train, &reviews.test, &reviews.unlabeled};
  for (int i = 0; i < 3; ++i) {
    header.counts[i] = {std::uint64_t(sets[i]->size()), sets[i]->ids.size()};
  }
  std::string out;
  AppendBytes(std::span<const Header>(&header, 1), &out);
  for (const TokenizedDataset* set : sets) EncodeSet(*set, &out);
  const std::uint32_t crc = Crc32c(std::as_bytes(std::span(out)));
  AppendBytes(std::span<const std::uint32_t>(&crc, 1), &out);
  return out;
}

// Errors: kDataLoss for damage, kFailedPrecondition for a cache of other data.
Result<TokenizedReviews> DecodeTokenCache(std::string_view bytes, const TokenCacheKey& key) {
  Header header;
  std::uint32_t crc = 0;
  if (bytes.size() < sizeof header + sizeof crc) {
    return DataLoss("it has only {} bytes", bytes.size());
  }
  std::string_view rest = bytes;
  TakeBytes(&rest, std::span(&header, 1));
  if (header.magic != kMagic) return DataLoss("it is not a token cache");
  if (header.version != kVersion) {
    return FailedPrecondition("it has version {}, expected {}", header.version, kVersion);
  }
  if (header.tokenizer != key.tokenizer || header.vocabulary != key.vocabulary ||
      header.max_length != TokensMaxOf(key) || header.source != key.source) {
    return FailedPrecondition(
        "it was made from other reviews, another vocabulary or sequence length");
  }
  // Check the size before allocating for the counts, and the checksum before using the values.
  std::uint64_t expected = sizeof header + sizeof crc;
  for (const Counts& counts : header.counts) expected += BytesOf(counts);
  if (expected != bytes.size())
    return DataLoss("it has {} bytes, expected {}", bytes.size(), expected);
  std::memcpy(&crc, bytes.data() + bytes.size() - sizeof crc, sizeof crc);
  if (crc != ChecksumOf(bytes.substr(0, bytes.size() - sizeof crc))) {
    return DataLoss("its checksum does not match");
  }
  TokenizedReviews reviews;
  TokenizedDataset* const sets[] = {&reviews.train, &reviews.test, &reviews.unlabeled};
  for (int i = 0; i < 3; ++i) {
    TROOP_ASSIGN_OR_RETURN(*sets[i], DecodeSet(header.counts[i], key, &rest));
  }
  return reviews;
}

// Steps: fingerprint the source, try the cache, else tokenize and write the cache.
Result<TokenizedReviews> LoadTokenizedReviews(const std::string& reviews_path,
                                              const Tokenizer& tokenizer, std::int32_t max_length,
                                              Storage* storage, const std::string& cache_path,
                                              TruncationSide side) {
  TokenCacheKey key = {.tokenizer = tokenizer.fingerprint(),
                       .vocabulary = tokenizer.size(),
                       .max_length = max_length,
                       .side = side};
  const Result<std::uint64_t> source = SourceFingerprint(reviews_path);
  if (source.ok() && storage != nullptr) {  // otherwise ReadReviews reports the error in detail
    key.source = *source;
    // A missing or stale cache is normal; only a warning is logged.
    const Result<Buffer> bytes = storage->Read(cache_path, kBytesMax);
    if (bytes.ok()) {
      Result<TokenizedReviews> cached = DecodeTokenCache(bytes->text(), key);
      if (cached.ok()) return cached;
      LogWarning("tokens of {}: tokenizing again because of {}: {}", reviews_path, cache_path,
                 cached.status().message());
    }
  }
  TROOP_ASSIGN_OR_RETURN(const Reviews reviews, ReadReviews(reviews_path));
  TokenizedReviews made = TokenizeReviews(reviews, tokenizer, max_length, side);
  if (storage != nullptr) {
    // A full disk must not stop a run that needs the cache for speed only.
    const Status written = storage->WriteAtomic(cache_path, EncodeTokenCache(made, key));
    if (!written.ok()) {
      LogWarning("tokens of {}: cannot write the cache {}: {}", reviews_path, cache_path,
                 written.message());
    }
  }
  return made;
}

}  // namespace troop
