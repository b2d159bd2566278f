// File format of cached tokens, and the decision whether a cached file can be used.

#include "datasets/text/token_cache.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/base/log.h"
#include "core/base/phase_progress.h"
#include "core/storage/crc32c.h"
#include "datasets/text/label_map.h"

namespace troop {
namespace {

constexpr std::array<char, 8> kMagic = {'T', 'r', 'o', 'o', 'p', 'T', 'o', 'k'};
// Increase it with every change of the format; other versions are tokenized again.
constexpr std::uint32_t kVersion = 2;
// Larger caches are not read.
constexpr std::size_t kBytesMax = std::size_t{8} << 30;
constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kProgressBytes = 16 * kMiB;

// Sizes of one set: the number of its samples, and of the tokens of all samples.
struct Counts {
  std::uint64_t samples, tokens;
};
constexpr std::size_t kSets = 4;  // train, validation, test, unlabeled
// Header of the file. Little-endian, like all supported machines.
struct Header {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t tokenizer;
  std::int32_t vocabulary;
  std::int32_t max_length;  // negative: texts were cut on the left
  std::uint64_t source;
  std::array<Counts, kSets> counts;
  std::uint32_t width;    // targets of a sample
  std::uint32_t learned;  // 1: the classes were learned from the data
  std::uint64_t names;    // bytes of the classes' names
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
std::uint64_t BytesOf(const Counts& counts, std::uint64_t width) {
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint32_t>::max();
  if (counts.samples > kMax || counts.tokens > kMax || width > kLabelsMax) return kBytesMax;
  // A sample takes its length, label, second segment and targets.
  const std::uint64_t sample = 3 * sizeof(std::int32_t) + width * sizeof(float);
  return counts.samples * sample + counts.tokens * sizeof(TokenId);
}

// Appends a set, in the order in which DecodeSet reads it.
void EncodeSet(const TokenizedDataset& set, std::string* out) {
  std::vector<std::int32_t> lengths;
  for (std::int64_t i = 0; i < set.size(); ++i) lengths.push_back(set.length(i));
  AppendBytes<std::int32_t>(lengths, out);
  AppendBytes<std::int32_t>(set.labels, out);
  AppendBytes<std::int32_t>(set.second, out);
  AppendBytes<TokenId>(set.ids, out);
  AppendBytes<float>(set.targets, out);
}

// Names with their lengths before them.
std::string EncodeNames(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) {
    const auto size = std::uint32_t(name.size());
    AppendBytes(std::span<const std::uint32_t>(&size, 1), &out);
    out += name;
  }
  return out;
}

// Lengths come from a file: each is compared with the bytes that are left.
Result<std::vector<std::string>> DecodeNames(std::string_view bytes) {
  std::vector<std::string> names;
  while (!bytes.empty()) {
    std::uint32_t size = 0;
    if (bytes.size() < sizeof size) return DataLoss("the names of the classes are cut off");
    TakeBytes(&bytes, std::span(&size, 1));
    if (bytes.size() < size) return DataLoss("the names of the classes are cut off");
    names.emplace_back(bytes.substr(0, size));
    bytes.remove_prefix(size);
  }
  return names;
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

// Checks every value of a set: a valid checksum does not exclude a faulty writer.
Status CheckSet(const TokenizedDataset& set, const TokenCacheKey& key, std::size_t classes) {
  for (std::int64_t i = 0; i < set.size(); ++i) {
    const std::int32_t label = set.labels[std::size_t(i)], second = set.second[std::size_t(i)];
    if (label < -1 || label >= std::int64_t(classes)) {
      return DataLoss("label {} is outside {} classes", label, classes);
    }
    if (second < 0 || (second > 0 && second >= set.length(i))) {
      return DataLoss("the second segment begins at {}, outside {} tokens", second, set.length(i));
    }
  }
  for (const TokenId id : set.ids) {
    if (id < 0 || id >= key.vocabulary)
      return DataLoss("token id {} is outside a vocabulary of {}", id, key.vocabulary);
  }
  for (const float target : set.targets) {
    if (!std::isfinite(target)) return DataLoss("a target is not a finite number");
  }
  return Status::Ok();
}

// Reads one set. REQUIRES: `bytes` has at least BytesOf(counts, width) bytes.
Result<TokenizedDataset> DecodeSet(const Counts& counts, const Header& header,
                                   const TokenCacheKey& key, std::string_view* bytes) {
  TokenizedDataset set;
  set.width = header.width;
  std::vector<std::int32_t> lengths(counts.samples);
  TakeBytes<std::int32_t>(bytes, lengths);
  set.labels.resize(counts.samples);
  TakeBytes<std::int32_t>(bytes, set.labels);
  set.second.resize(counts.samples);
  TakeBytes<std::int32_t>(bytes, set.second);
  set.ids.resize(counts.tokens);
  TakeBytes<TokenId>(bytes, set.ids);
  set.targets.resize(counts.samples * header.width);
  TakeBytes<float>(bytes, set.targets);
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
  return set;
}

// Pointers to the sets of a data set, in the order of the file.
template <class Texts>
auto SetsOf(Texts& texts) {
  return std::array{&texts.train, &texts.validation, &texts.test, &texts.unlabeled};
}

}  // namespace

// Layout: header, names of the classes, the sets, CRC-32C of everything before it.
std::string EncodeTokenCache(const TokenizedTexts& texts, const TokenCacheKey& key) {
  // The widths of all sets are equal.
  const std::string names = EncodeNames(texts.names);
  Header header = {.magic = kMagic,
                   .version = kVersion,
                   .tokenizer = key.tokenizer,
                   .vocabulary = key.vocabulary,
                   .max_length = TokensMaxOf(key),
                   .source = key.source,
                   .width = std::uint32_t(texts.train.width),
                   .learned = key.names.empty(),
                   .names = names.size()};
  const auto sets = SetsOf(texts);
  for (std::size_t i = 0; i < kSets; ++i) {
    header.counts[i] = {std::uint64_t(sets[i]->size()), sets[i]->ids.size()};
  }
  std::string out;
  AppendBytes(std::span<const Header>(&header, 1), &out);
  out += names;
  for (const TokenizedDataset* set : sets) EncodeSet(*set, &out);
  const std::uint32_t crc = Crc32c(std::as_bytes(std::span(out)));
  AppendBytes(std::span<const std::uint32_t>(&crc, 1), &out);
  return out;
}

// Errors: kDataLoss for damage, kFailedPrecondition for a cache of other data.
Result<TokenizedTexts> DecodeTokenCache(std::string_view bytes, const TokenCacheKey& key) {
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
        "it was made from other texts or columns, another vocabulary or sequence length");
  }
  // Check the size before allocating for the counts, and the checksum before using the values.
  std::uint64_t expected = sizeof header + sizeof crc + std::min(header.names, kBytesMax);
  for (const Counts& counts : header.counts) expected += BytesOf(counts, header.width);
  if (expected != bytes.size())
    return DataLoss("it has {} bytes, expected {}", bytes.size(), expected);
  std::memcpy(&crc, bytes.data() + bytes.size() - sizeof crc, sizeof crc);
  if (crc != ChecksumOf(bytes.substr(0, bytes.size() - sizeof crc))) {
    return DataLoss("its checksum does not match");
  }
  TokenizedTexts texts;
  TROOP_ASSIGN_OR_RETURN(texts.names, DecodeNames(rest.substr(0, header.names)));
  rest.remove_prefix(header.names);
  // Learned classes may be given later (model.labels of the resolved config).
  if (key.names.empty() ? header.learned == 0 : key.names != texts.names) {
    return FailedPrecondition("it was made for other classes");
  }
  const auto sets = SetsOf(texts);
  for (std::size_t i = 0; i < kSets; ++i) {
    TROOP_ASSIGN_OR_RETURN(*sets[i], DecodeSet(header.counts[i], header, key, &rest));
    TROOP_RETURN_IF_ERROR(CheckSet(*sets[i], key, texts.names.size()));
  }
  return texts;
}

// Steps: fingerprint the sources, try the cache, else tokenize and write the cache.
Result<TokenizedTexts> LoadTokenizedTexts(const TextSources& sources, const Tokenizer& tokenizer,
                                          const TokenizationOptions& options,
                                          const TokenCacheFile& cache) {
  TokenCacheKey key = {.tokenizer = tokenizer.fingerprint(),
                       .vocabulary = tokenizer.size(),
                       .max_length = options.max_length,
                       .side = options.side,
                       .names = sources.names};
  const Result<std::uint64_t> source =
      cache.storage == nullptr ? Result<std::uint64_t>(0) : SourcesFingerprint(sources);
  if (source.ok() && cache.storage != nullptr) {  // otherwise ReadTexts reports the error in detail
    key.source = *source;
    // A missing or stale cache is normal; only a warning is logged.
    const Result<Buffer> bytes = cache.storage->Read(cache.path, kBytesMax);
    if (bytes.ok()) {
      Result<TokenizedTexts> cached = DecodeTokenCache(bytes->text(), key);
      if (cached.ok()) return cached;
      LogWarning("tokens of {}: tokenizing again because of {}: {}", sources.train, cache.path,
                 cached.status().message());
    }
  }
  TROOP_ASSIGN_OR_RETURN(TokenizedTexts made, TokenizeSources(sources, tokenizer, options));
  if (cache.storage != nullptr) {
    // A full disk must not stop a run that needs the cache for speed only.
    const Status written = cache.storage->WriteAtomic(cache.path, EncodeTokenCache(made, key));
    if (!written.ok()) {
      LogWarning("tokens of {}: cannot write the cache {}: {}", sources.train, cache.path,
                 written.message());
    }
  }
  return made;
}

}  // namespace troop
