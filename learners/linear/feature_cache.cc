// Implements the cache of features: the data of linear models as tensors of one file.

#include "learners/linear/feature_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <span>
#include <utility>
#include <vector>

#include "core/base/log.h"
#include "core/storage/crc32c.h"
#include "core/storage/storage.h"
#include "datasets/text/text_sources.h"
#include "nn/io/safetensors.h"

namespace troop {
namespace {

constexpr const char* kVersion = "1";

// The vector outlives the tensor: it belongs to the data that are encoded.
template <class T>
ConstTensor Borrow(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return ConstTensor::Borrow(bytes, {DTypeOf<T>::value, {std::int64_t(values.size())}});
}

// Strings with their lengths before them.
std::vector<std::uint8_t> Join(const std::vector<std::string>& words) {
  std::vector<std::uint8_t> out;
  for (const std::string& word : words) {
    const auto size = std::uint32_t(word.size());
    const std::size_t at = out.size();
    out.resize(at + sizeof size + word.size());
    std::memcpy(out.data() + at, &size, sizeof size);
    std::ranges::copy(word, out.begin() + std::ptrdiff_t(at + sizeof size));
  }
  return out;
}

// Lengths come from a file: each is compared with the bytes that are left.
Result<std::vector<std::string>> Split(const std::vector<std::uint8_t>& bytes) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at < bytes.size();) {
    std::uint32_t size = 0;
    const std::size_t left = bytes.size() - at;
    if (left >= sizeof size) std::memcpy(&size, bytes.data() + at, sizeof size);
    if (left < sizeof size || left - sizeof size < size) return DataLoss("a word is cut off");
    at += sizeof size;
    words.emplace_back(bytes.begin() + std::ptrdiff_t(at),
                       bytes.begin() + std::ptrdiff_t(at + size));
    at += size;
  }
  return words;
}

// Tensors without elements are not in the file.
template <class T>
Result<std::vector<T>> Take(const TensorFile& file, const std::string& name) {
  const auto found = file.tensors.find(name);
  if (found == file.tensors.end()) return std::vector<T>();
  if (found->second.dtype() != DTypeOf<T>::value)
    return DataLoss("\"{}\" is {}", name, found->second.spec().ToString());
  const std::span<const T> values = found->second.template as<T>();
  return std::vector<T>(values.begin(), values.end());
}

// Checks everything that later code relies on: a valid checksum does not exclude a faulty writer.
Status CheckRows(const SparseRows& rows, std::size_t labels) {
  const std::vector<std::int64_t>& begins = rows.begins;
  if (begins.size() != labels + 1 || begins.front() != 0 || !std::ranges::is_sorted(begins) ||
      begins.back() != std::ssize(rows.columns) || rows.columns.size() != rows.values.size()) {
    return DataLoss("the rows contradict each other");
  }
  for (std::int64_t i = 0; i < rows.size(); ++i) {
    std::int32_t last = -1;
    for (const std::int32_t column : rows.row(i).columns) {
      if (column <= last || column >= rows.width) return DataLoss("row {} is out of order", i);
      last = column;
    }
  }
  return Status::Ok();
}

void AddSet(const LinearSet& set, const std::string& name, TensorFile* file) {
  const auto add = [&](const char* part, ConstTensor values) {
    if (values.shape().elements() > 0) file->tensors[name + part] = std::move(values);
  };
  add(".begins", Borrow(set.rows.begins));
  add(".columns", Borrow(set.rows.columns));
  add(".values", Borrow(set.rows.values));
  add(".labels", Borrow(set.labels));
  add(".targets", Borrow(set.targets));
}

// width: of the rows. classes: labels are below it.
Result<LinearSet> TakeSet(const TensorFile& file, const std::string& name, std::int64_t width,
                          std::int64_t classes) {
  LinearSet set;
  set.rows.width = width;
  TROOP_ASSIGN_OR_RETURN(set.rows.begins, Take<std::int64_t>(file, name + ".begins"));
  TROOP_ASSIGN_OR_RETURN(set.rows.columns, Take<std::int32_t>(file, name + ".columns"));
  TROOP_ASSIGN_OR_RETURN(set.rows.values, Take<float>(file, name + ".values"));
  TROOP_ASSIGN_OR_RETURN(set.labels, Take<std::int32_t>(file, name + ".labels"));
  TROOP_ASSIGN_OR_RETURN(set.targets, Take<float>(file, name + ".targets"));
  TROOP_RETURN_IF_ERROR(CheckRows(set.rows, set.labels.size()).WithContext(name));
  const auto bad = [&](std::int32_t label) { return label < -1 || label >= classes; };
  if (std::ranges::any_of(set.labels, bad)) return DataLoss("{}: a label has no class", name);
  // Equally many targets for each example: none, one number, or one per class.
  const std::size_t count = set.labels.size();
  if (count > 0) set.width = std::int64_t(set.targets.size() / count);
  if (set.targets.size() != std::size_t(set.width) * count ||
      (set.width > 1 && set.width != classes)) {
    return DataLoss("{}: {} targets of {} examples", name, set.targets.size(), count);
  }
  return set;
}

// Covers rows, labels, terms and their weights.
std::string ChecksumOf(const LinearData& data) {
  const std::vector<float> none;
  const std::vector<float>& idf = data.vectorizer ? data.vectorizer->idf() : none;
  return fmt::format("{}, {:08x}", data.Identity(), Crc32c(std::as_bytes(std::span(idf))));
}

// Settings that change rows, labels or splits, in a fixed order. Names of classes are compared in
// Read, since roles have those that the first one has learned.
std::string SettingsOf(const TrainingConfig& config) {
  const NgramOptions& f = config.features;
  const DataConfig& d = config.data;
  const std::string features =
      fmt::format("{} {} {} {} {} {} {} {} {} {} {}", EnumName(f.analyzer), f.ngram_min,
                  f.ngram_max, f.lowercase, f.word_length_min, f.binary, f.n_features, f.min_df,
                  f.use_idf, f.sublinear_tf, EnumName(f.norm));
  return fmt::format("{}\n{} {} {} {} {}\n{}\n{}\n{}\n{}\n{}", features, d.validation_split,
                     d.test_split, config.seed, EnumName(config.model.problem_type),
                     config.evaluator_enabled, d.delimiter, d.label_column,
                     fmt::join(d.text_columns, "\n"), d.validation, d.test);
}

}  // namespace

Buffer EncodeFeatures(const LinearData& data, const std::string& key) {
  TensorFile file;
  AddSet(data.train, "train", &file);
  AddSet(data.validation_split, "validation", &file);
  AddSet(data.test, "test", &file);
  const std::vector<std::uint8_t> names = Join(data.names);
  const std::vector<std::uint8_t> terms =
      data.vectorizer ? Join(data.vectorizer->terms()) : std::vector<std::uint8_t>();
  if (!names.empty()) file.tensors["names"] = Borrow(names);
  if (!terms.empty()) file.tensors["terms"] = Borrow(terms);
  if (data.vectorizer && !data.vectorizer->idf().empty())
    file.tensors["idf"] = Borrow(data.vectorizer->idf());
  file.metadata = {{"version", kVersion}, {"key", key}, {"checksum", ChecksumOf(data)}};
  // The names and terms live until here.
  return EncodeSafetensors(file);
}

// The checksum is compared last, when the data are safe to read.
Result<std::shared_ptr<LinearData>> DecodeFeatures(const Buffer& bytes, const std::string& key,
                                                   const NgramOptions& options) {
  TROOP_ASSIGN_OR_RETURN(const TensorFile file, DecodeSafetensors(bytes));
  const auto text = [&](const char* name) {
    const auto found = file.metadata.find(name);
    return found == file.metadata.end() ? std::string() : found->second;
  };
  if (text("version") != kVersion) return FailedPrecondition("another version");
  if (text("key") != key) return FailedPrecondition("other data or settings");
  auto data = std::make_shared<LinearData>();
  // The vectorizer gives the width of the rows.
  TROOP_ASSIGN_OR_RETURN(const auto names, Take<std::uint8_t>(file, "names"));
  TROOP_ASSIGN_OR_RETURN(data->names, Split(names));
  TROOP_ASSIGN_OR_RETURN(const auto joined, Take<std::uint8_t>(file, "terms"));
  TROOP_ASSIGN_OR_RETURN(std::vector<std::string> terms, Split(joined));
  TROOP_ASSIGN_OR_RETURN(std::vector<float> idf, Take<float>(file, "idf"));
  auto restored = NgramVectorizer::Restore(options, std::move(terms), std::move(idf));
  if (!restored.ok()) return DataLoss("terms: {}", restored.status().message());
  data->vectorizer = *std::move(restored);
  // The sets are checked against the columns and classes.
  const std::int64_t width = data->vectorizer->width(), classes = std::ssize(data->names);
  TROOP_ASSIGN_OR_RETURN(data->train, TakeSet(file, "train", width, classes));
  TROOP_ASSIGN_OR_RETURN(data->validation_split, TakeSet(file, "validation", width, classes));
  TROOP_ASSIGN_OR_RETURN(data->test, TakeSet(file, "test", width, classes));
  if (ChecksumOf(*data) != text("checksum")) return DataLoss("the checksum differs");
  return data;
}

// svmlight files have features already, and reading them takes no longer than a cache.
FeatureCache::FeatureCache(const TrainingConfig& config)
    : options_(config.features), labels_(config.model.labels) {
  if (config.data.cache.empty() || IsSvmlightPath(config.data.reviews)) return;
  const DataConfig& data = config.data;
  const TextSources sources{.train = data.reviews,
                            .validation = data.validation,
                            .test = data.test,
                            .format = {.text_columns = data.text_columns,
                                       .label_column = data.label_column,
                                       .delimiter = data.delimiter,
                                       .problem_type = config.model.problem_type},
                            .names = config.model.labels};
  const Result<std::uint64_t> content = SourcesFingerprint(sources);
  if (!content.ok()) return;  // ReadSources reports the error in detail
  auto made = MakeDiskStorage((std::filesystem::path(config.log_dir) / data.cache).string());
  if (!made.ok()) return;
  storage_ = *std::move(made);
  // The name covers the settings, so that each has one file; the key covers the content, too.
  const std::string settings = SettingsOf(config);
  path_ = fmt::format("{}-{:08x}.features", std::filesystem::path(data.reviews).filename().string(),
                      Crc32c(std::as_bytes(std::span(settings))));
  key_ = fmt::format("{:016x}\n{}", *content, settings);
}

std::shared_ptr<LinearData> FeatureCache::Read() const {
  if (storage_ == nullptr) return nullptr;
  const Result<Buffer> bytes = storage_->Read(path_, kFeatureCacheBytesMax);
  if (!bytes.ok()) return nullptr;  // usually the first run
  auto data = DecodeFeatures(*bytes, key_, options_);
  if (data.ok() && !labels_.empty() && (*data)->names != labels_)
    data = FailedPrecondition("other names of classes");
  if (data.ok()) return *std::move(data);
  LogWarning("features: making them again because of {}: {}", path_, data.status().message());
  return nullptr;
}

// A full disk must not stop a run that needs the cache for speed only.
void FeatureCache::Write(const LinearData& data) const {
  if (storage_ == nullptr) return;
  const Buffer bytes = EncodeFeatures(data, key_);
  if (bytes.size() > kFeatureCacheBytesMax) {
    LogWarning("features: {} bytes are not cached, the limit is {}", bytes.size(),
               kFeatureCacheBytesMax);
    return;
  }
  const Status written = storage_->WriteAtomic(path_, bytes.bytes());
  if (!written.ok())
    LogWarning("features: cannot write the cache {}: {}", path_, written.message());
}

}  // namespace troop
