// Chooses the reader of a source by its name, verifies checksums, and reads folders and archives.

#include "datasets/text/labeled_texts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "core/base/phase_progress.h"
#include "core/storage/list_folder.h"
#include "core/storage/read_file.h"
#include "core/storage/sha256.h"
#include "datasets/text/archive_reader.h"
#include "datasets/text/class_folder.h"
#include "datasets/text/file_checksum.h"
#include "datasets/text/text_table.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

// Limits that published data sets are far below; larger input is an error.
constexpr std::size_t kFileBytesMax = std::size_t{2} << 30;      // size of an archive or a table
constexpr std::size_t kUnpackedBytesMax = std::size_t{2} << 30;  // of a compressed file
// The longest published review has about 14 KB; this bounds the memory of a wrong file.
constexpr std::size_t kTextBytesMax = std::size_t{1} << 24;
constexpr std::size_t kMiB = std::size_t{1} << 20;

// Paths of the .txt files below a folder, relative to it, at most `levels` folders deep.
Status ListTexts(const std::string& root, const std::string& below, int levels,
                 std::vector<std::string>* names) {
  TROOP_ASSIGN_OR_RETURN(const std::vector<fs::path> entries,
                         ListFolder((fs::path(root) / below).string()));
  for (const fs::path& entry : entries) {
    const std::string name = (fs::path(below) / entry.filename()).generic_string();
    std::error_code error;
    if (name.ends_with(".txt")) {
      names->push_back(name);
    } else if (levels > 0 && fs::is_directory(entry, error)) {
      TROOP_RETURN_IF_ERROR(ListTexts(root, name, levels - 1, names));
    }
  }
  return Status::Ok();
}

// Lists the files first, so that progress has a total.
Result<LabeledTexts> ReadClassFolder(const std::string& path, ProblemType problem) {
  std::vector<std::string> names;
  constexpr int kLevels = 2;  // a set, and a class
  TROOP_RETURN_IF_ERROR(ListTexts(path, "", kLevels, &names));
  ClassFolderCollector collector;
  PhaseProgress progress("reading", "texts", std::ssize(names));
  std::int64_t done = 0;
  for (std::string& name : names) {
    TROOP_ASSIGN_OR_RETURN(std::string text,
                           ReadFile((fs::path(path) / name).string(), kTextBytesMax));
    TROOP_RETURN_IF_ERROR(collector.Add(std::move(name), std::move(text)));
    progress.Show(++done);
  }
  return collector.Finish(problem);
}

// Only the .txt files are read; others are skipped.
Result<LabeledTexts> ReadClassArchive(const std::string& path, const std::string& bytes,
                                      ProblemType problem) {
  const Compression compression = CompressionOf(path);
  std::string unpacked;
  // gzip is unpacked completely: libarchive does not verify its checksum.
  if (compression == Compression::kGzip) {
    TROOP_ASSIGN_OR_RETURN(unpacked, Decompress(bytes, compression, kUnpackedBytesMax));
  }
  const std::string& tar = compression == Compression::kGzip ? unpacked : bytes;
  TROOP_ASSIGN_OR_RETURN(ArchiveReader reader,
                         ArchiveReader::Make(tar, {.xz = compression == Compression::kXz,
                                                   .bytes_max = kUnpackedBytesMax,
                                                   .file_bytes_max = kTextBytesMax}));
  PhaseProgress progress("unpacking", "MiB", std::int64_t(tar.size() / kMiB));
  ClassFolderCollector collector;
  for (;;) {
    TROOP_ASSIGN_OR_RETURN(const bool more, reader.Next());
    if (!more) return collector.Finish(problem);
    progress.Show(std::int64_t(reader.position() / kMiB));
    if (!reader.name().ends_with(".txt")) continue;
    TROOP_ASSIGN_OR_RETURN(std::string text, reader.Read());
    TROOP_RETURN_IF_ERROR(collector.Add(reader.name(), std::move(text)));
  }
}

// Column settings have no meaning for folders; they are not ignored silently.
Status CheckNoColumns(const TextFormat& format) {
  const char* const key = !format.text_columns.empty()   ? "data.text_columns"
                          : !format.label_column.empty() ? "data.label_column"
                          : !format.delimiter.empty()    ? "data.delimiter"
                                                         : nullptr;
  if (key == nullptr) return Status::Ok();
  return InvalidArgument("{} is set, but applies to tables (.csv, .tsv, .jsonl) only; omit it",
                         key);
}

// The kind follows from the name; the content is checked by the reader.
Result<LabeledTexts> ReadAny(const std::string& path, const TextFormat& format) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    TROOP_RETURN_IF_ERROR(CheckNoColumns(format));
    return ReadClassFolder(path, format.problem_type);
  }
  const std::optional<TextSourceKind> kind = TextSourceKindOf(path);
  if (path.ends_with(".parquet")) {
    return InvalidArgument(
        "Parquet is not supported; convert it: python3 -c \"import pandas; "
        "pandas.read_parquet('x.parquet').to_csv('x.csv', index=False)\"");
  }
  if (!kind && fs::exists(path, error)) {
    return InvalidArgument(
        "neither a folder, a table (.csv, .tsv, .jsonl; also .gz and .xz) nor an archive "
        "(.tar.gz, .tar.xz)");
  }
  TROOP_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path, kFileBytesMax));
  // A damaged file is an error before its content is judged.
  TROOP_RETURN_IF_ERROR(CheckSha256Sums(path, bytes));
  if (kind == TextSourceKind::kArchive) {
    TROOP_RETURN_IF_ERROR(CheckNoColumns(format));
    Result<LabeledTexts> texts = ReadClassArchive(path, bytes, format.problem_type);
    const Status& status = texts.status();
    if (status.code() == Code::kDataLoss || status.code() == Code::kResourceExhausted) {
      return Status(status.code(),
                    fmt::format("{}; expected a complete archive of train/CLASS/*.txt and so on, "
                                "got {} bytes",
                                status.message(), bytes.size()));
    }
    return texts;
  }
  if (CompressionOf(path) == Compression::kNone) return ReadTextTable(path, bytes, *kind, format);
  TROOP_ASSIGN_OR_RETURN(const std::string content,
                         Decompress(bytes, CompressionOf(path), kUnpackedBytesMax));
  return ReadTextTable(path, content, *kind, format);
}

// True for the published data set, by its name: its address is a remedy.
bool IsPublished(const std::string& path) {
  return fs::path(path).lexically_normal().filename().string().find("aclImdb") != path.npos;
}

}  // namespace

// Removes the suffix of the compression first.
std::optional<TextSourceKind> TextSourceKindOf(std::string_view path) {
  if (path.ends_with(".tgz")) return TextSourceKind::kArchive;
  for (const std::string_view packed : {".gz", ".xz"}) {
    if (!path.ends_with(packed)) continue;
    path.remove_suffix(packed.size());
    break;
  }
  // The suffixes of tables and archives without compression.
  constexpr std::array<std::pair<std::string_view, TextSourceKind>, 6> kSuffixes = {
      {{".csv", TextSourceKind::kCsv},
       {".tsv", TextSourceKind::kTsv},
       {".jsonl", TextSourceKind::kJsonLines},
       {".ndjson", TextSourceKind::kJsonLines},
       {".json", TextSourceKind::kJsonLines},
       {".tar", TextSourceKind::kArchive}}};
  for (const auto& [suffix, kind] : kSuffixes) {
    if (path.ends_with(suffix)) return kind;
  }
  return std::nullopt;
}

// Everything but archives has rows.
bool IsTextTable(std::string_view path) {
  const std::optional<TextSourceKind> kind = TextSourceKindOf(path);
  return kind && *kind != TextSourceKind::kArchive;
}

// The columns of the label are chosen too, so that errors are those of ReadTexts.
Result<std::vector<std::string>> FindTextColumns(const std::string& path,
                                                 const TextFormat& format) {
  std::error_code error;
  if (!IsTextTable(path) || fs::is_directory(path, error)) return std::vector<std::string>();
  TROOP_ASSIGN_OR_RETURN(std::string content, ReadFile(path, kFileBytesMax));
  const Compression compression = CompressionOf(path);
  if (compression != Compression::kNone) {
    TROOP_ASSIGN_OR_RETURN(content, Decompress(content, compression, kUnpackedBytesMax));
  }
  TROOP_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                         ColumnsOfTable(content, *TextSourceKindOf(path), format));
  TROOP_ASSIGN_OR_RETURN(TextColumns columns, ChooseTextColumns(names, format));
  return std::move(columns.texts);
}

// The files are not read, so that status lines can use it.
bool HasTestTexts(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return fs::is_directory(fs::path(path) / "test", error);
  return !IsTextTable(path);
}

// Adds the path to errors, and for the published data set the address.
Result<LabeledTexts> ReadTexts(const std::string& path, const TextFormat& format) {
  // A user's own file is not the published data set: the address would not help.
  Result<LabeledTexts> texts = ReadAny(path, format);
  if (texts.ok()) return texts;
  const Status status = texts.status();
  std::string message = status.message();
  if (status.code() == Code::kNotFound) {
    if (const auto sum = ExpectedSha256(path)) message += " (expected SHA-256 " + *sum + ")";
  }
  if (message.find(path) == message.npos) message = path + ": " + message;
  if (IsPublished(path)) message = fmt::format("{}; {}", message, kReviewsAddress);
  return Status(status.code(), message);
}

}  // namespace troop
