// Combines the files of a data set, and computes the fingerprints by which cached tokens are found.

#include "datasets/text/text_sources.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <span>
#include <string_view>
#include <utility>

#include "core/base/log.h"
#include "core/config/enum_format.h"
#include "core/storage/crc32c.h"
#include "core/storage/json.h"
#include "core/storage/read_file.h"
#include "core/storage/sha256.h"
#include "datasets/text/label_map.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBytesMax = std::size_t{8} << 30;  // larger sources are not read

// The settings of columns apply to the tables among the sources; without a table ReadTexts rejects
// them.
TextFormat FormatOf(const TextSources& sources, const std::string& path) {
  // JSON Lines have columns, too.
  const bool any = std::ranges::any_of(std::vector{sources.train, sources.validation, sources.test},
                                       &IsTextTable);
  // Folders and archives among tables keep the problem only.
  TextFormat format = sources.format;
  if (any && !IsTextTable(path)) {
    format.text_columns.clear();
    format.label_column.clear();
    format.delimiter.clear();
  }
  return format;
}

// The only set of a separate source.
Result<LabeledTexts> ReadSeparate(const TextSources& sources, const std::string& key,
                                  const std::string& path) {
  Result<LabeledTexts> texts = ReadTexts(path, FormatOf(sources, path));
  if (!texts.ok()) return texts.status().WithContext(key);
  if (!texts->test.empty() || !texts->validation.empty()) {
    return InvalidArgument(
        "{}: {} contains several sets (train, test, …); name one of these folders, or a table", key,
        path);
  }
  texts->unlabeled.clear();
  return texts;
}

// The classes: given, defined by the format, or learned.
Result<std::vector<std::string>> NamesOf(const TextSources& sources, const LabeledTexts& texts) {
  // Numbers have no names.
  if (sources.format.problem_type == ProblemType::kRegression) return std::vector<std::string>();
  if (!sources.names.empty()) return sources.names;
  // A masked LM of a table or a folder of classes has none either.
  if (!texts.names.empty() || !sources.format.labeled) return texts.names;
  TROOP_ASSIGN_OR_RETURN(const LabelMap map,
                         LabelMap::Learn(texts.train, sources.format.problem_type));
  return map.names();
}

// Reports classes that the training examples do not have.
void ReportUnused(const TokenizedTexts& texts) {
  if (texts.train.width > 0 || texts.names.empty() || texts.train.size() == 0) return;
  std::vector<bool> used(texts.names.size());
  for (const std::int32_t label : texts.train.labels) {
    if (label >= 0) used[std::size_t(label)] = true;
  }
  // A log line for each: the class is never predicted.
  for (std::size_t id = 0; id < used.size(); ++id) {
    if (!used[id]) LogWarning("labels: no training example has the class {:?}", texts.names[id]);
  }
}

// Sources of one data set have pairs, or none of them has.
Status CheckPairs(const TextSources& sources, const std::string& path, bool pairs, bool expected) {
  if (pairs == expected) return Status::Ok();
  return InvalidArgument("{} has {}, but {}: {} has {}; set data.text_columns", path,
                         pairs ? "pairs of texts" : "single texts", sources.train_key,
                         sources.train, expected ? "pairs of texts" : "single texts");
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
  // Links are followed, as by the reader.
  const auto links = fs::directory_options::follow_directory_symlink;
  for (fs::recursive_directory_iterator it(path, links, error), end; !error && it != end;
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

// A fingerprint's name is empty if there is no such source.
Result<std::string> FingerprintText(const std::string& path) {
  if (path.empty()) return std::string();
  TROOP_ASSIGN_OR_RETURN(const std::uint64_t value, SourceFingerprint(path));
  return fmt::format("{:016x}", value);
}

}  // namespace

// Steps: the training source and its own sets, the classes, the separate sources.
Result<TokenizedTexts> TokenizeSources(const TextSources& sources, const Tokenizer& tokenizer,
                                       const TokenizationOptions& options) {
  Result<LabeledTexts> train = ReadTexts(sources.train, FormatOf(sources, sources.train));
  if (!train.ok()) return train.status().WithContext(sources.train_key);
  const std::string context = fmt::format("{}: {}", sources.train_key, sources.train);
  const auto names = NamesOf(sources, *train);
  if (!names.ok()) {
    return names.status().WithContext(sources.names.empty() ? context : "model.labels");
  }
  // Step 2: tokens and labels of the training source.
  TokenizationOptions use = options;
  use.problem_type = sources.format.problem_type;
  use.labeled = sources.format.labeled;
  Result<TokenizedTexts> out = TokenizeTexts(*train, *names, tokenizer, use);
  if (!out.ok()) return out.status().WithContext(context);
  ReportUnused(*out);
  // Step 3: the separate sources replace its sets.
  const bool pairs = train->pairs;
  *train = {};  // its memory is free for the other sources
  for (const auto& [key, path, set] :
       {std::tuple{"data.validation", sources.validation, &TokenizedTexts::validation},
        {"data.test", sources.test, &TokenizedTexts::test}}) {
    if (path.empty()) continue;
    TROOP_ASSIGN_OR_RETURN(const LabeledTexts texts, ReadSeparate(sources, key, path));
    TROOP_RETURN_IF_ERROR(CheckPairs(sources, path, texts.pairs, pairs).WithContext(key));
    Result<TokenizedTexts> made = TokenizeTexts(texts, *names, tokenizer, use);
    if (!made.ok()) return made.status().WithContext(fmt::format("{}: {}", key, path));
    if (((*out).*set).size() > 0) {
      LogInfo("{}: {} is used instead of the set in {}", key, path, sources.train);
    }
    (*out).*set = std::move(made->train);
  }
  return out;
}

// All sets are in memory at the same time.
Result<LabeledTexts> ReadSources(const TextSources& sources) {
  Result<LabeledTexts> out = ReadTexts(sources.train, FormatOf(sources, sources.train));
  if (!out.ok()) return out.status().WithContext(sources.train_key);
  Result<std::vector<std::string>> names = NamesOf(sources, *out);
  if (!names.ok()) {
    return names.status().WithContext(sources.names.empty()
                                          ? fmt::format("{}: {}", sources.train_key, sources.train)
                                          : "model.labels");
  }
  out->names = *std::move(names);
  // The separate sources replace the sets of the first.
  for (const auto& [key, path, set] :
       {std::tuple{"data.validation", sources.validation, &LabeledTexts::validation},
        {"data.test", sources.test, &LabeledTexts::test}}) {
    if (path.empty()) continue;
    TROOP_ASSIGN_OR_RETURN(LabeledTexts texts, ReadSeparate(sources, key, path));
    TROOP_RETURN_IF_ERROR(CheckPairs(sources, path, texts.pairs, out->pairs).WithContext(key));
    if (!((*out).*set).empty())
      LogInfo("{}: {} is used instead of the set in {}", key, path, sources.train);
    (*out).*set = std::move(texts.train);
  }
  return out;
}

// A single file is read completely, so that a copy with another time keeps its cache.
Result<std::uint64_t> SourceFingerprint(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return FolderFingerprint(path);
  if (!TextSourceKindOf(path)) return InvalidArgument("{} is not a table or an archive", path);
  TROOP_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path, kBytesMax));
  return std::uint64_t(Crc32c(std::as_bytes(std::span(bytes)))) << 32 | std::uint32_t(bytes.size());
}

// A hash of the parts' text. The classes are compared by themselves (TokenCacheKey::names).
Result<std::uint64_t> SourcesFingerprint(const TextSources& sources) {
  std::string text;
  for (const std::string* path : {&sources.train, &sources.validation, &sources.test}) {
    TROOP_ASSIGN_OR_RETURN(const std::string one, FingerprintText(*path));
    text += one + ";";
  }
  // Lists and strings are quoted, so that different settings have different texts.
  const TextFormat& format = sources.format;
  text += fmt::format("{} {} {} {} {}", JsonArray::Of(format.text_columns).str(),
                      JsonQuote(format.label_column), JsonQuote(format.delimiter),
                      format.problem_type, format.labeled);
  constexpr std::size_t kDigits = 16;  // 64 bits
  const std::string digits = Sha256Hex(text).substr(0, kDigits);
  std::uint64_t value = 0;
  std::from_chars(digits.data(), digits.data() + kDigits, value, 16);
  return value;
}

}  // namespace troop
