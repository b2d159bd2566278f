// Implements reading of texts from tables, JSON Lines and plain files.

#include "apps/deploy/text_file_reader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "core/base/buffer.h"
#include "core/storage/json.h"
#include "core/storage/storage.h"
#include "datasets/text/archive_reader.h"
#include "datasets/text/csv.h"
#include "datasets/text/text_table.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

// Columns to read: those that the caller names, or otherwise prefers.
struct Wanted {
  std::vector<std::string> given, usual;

  // Those of them that are among the existing ones; the order is that of ChooseTextColumns.
  Result<std::vector<std::string>> In(const std::vector<std::string>& existing) const {
    const auto exists = [&](const std::string& name) {
      return std::ranges::find(existing, name) != existing.end();
    };
    for (const std::string& name : given) {
      if (!exists(name)) {
        return NotFound("no column \"{}\"; the columns are {}", name, fmt::join(existing, ", "));
      }
    }
    if (!given.empty()) return given;
    if (!usual.empty() && std::ranges::all_of(usual, exists)) return usual;
    for (const std::vector<std::string>& known : KnownTextColumns()) {
      if (std::ranges::all_of(known, exists)) return known;
    }
    return NotFound("no column text, review, sentence, …; name one with --text-column: {}",
                    fmt::join(existing, ", "));
  }
};

// A mapped file with its path, for messages.
struct MappedFile {
  std::string path;
  Buffer bytes;
  Status At(std::size_t line, const Status& status) const {
    return status.WithContext(fmt::format("{}:{}", path, line));
  }
};

// Removes the first line from `rest` and returns it without its end, which may be that of Windows.
std::string_view TakeLine(std::string_view* rest) {
  const std::size_t end = rest->find('\n');
  std::string_view line = rest->substr(0, end);
  rest->remove_prefix(end == rest->npos ? rest->size() : end + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

// Every line is a text, also an empty one, so that answers and lines have equal numbers.
class LineReader final : public TextFileReader {
 public:
  explicit LineReader(MappedFile file) : file_(std::move(file)), rest_(file_.bytes.text()) {}
  Result<bool> Next(TextRow* row) override {
    if (rest_.empty()) return false;
    row->text = TakeLine(&rest_);
    row->pair.reset();
    return true;
  }
  std::size_t bytes() const override { return file_.bytes.size(); }
  std::size_t bytes_left() const override { return rest_.size(); }

 private:
  const MappedFile file_;
  std::string_view rest_;
};

// A table. Column names are compared as they are, capitals and spaces included.
class CsvFile final : public TextFileReader {
 public:
  CsvFile(MappedFile file, Wanted columns, char delimiter)
      : file_(std::move(file)),
        columns_(std::move(columns)),
        reader_(file_.bytes.text(), delimiter) {}

  // Reads the header and finds the columns.
  Status Begin() {
    std::vector<std::string> header;
    TROOP_ASSIGN_OR_RETURN(const bool there, reader_.Next(&header));
    if (!there)
      return InvalidArgument("{} is empty; it needs a header with the columns", file_.path);
    const auto chosen = columns_.In(header);
    if (!chosen.ok()) return file_.At(reader_.line(), chosen.status());
    for (const std::string& name : *chosen)
      places_.push_back(std::size_t(std::ranges::find(header, name) - header.begin()));
    return Status::Ok();
  }
  // A row may have more fields than the header, or fewer after the texts.
  Result<bool> Next(TextRow* row) override {
    const Result<bool> there = reader_.Next(&fields_);
    if (!there.ok()) return there.status().WithContext(file_.path);
    if (!*there) return false;
    if (*std::ranges::max_element(places_) >= fields_.size()) {
      return file_.At(reader_.line(),
                      InvalidArgument("{} columns, but the text is in column {} of the header",
                                      fields_.size(), *std::ranges::max_element(places_) + 1));
    }
    row->text = std::move(fields_[places_[0]]);
    row->pair.reset();
    if (places_.size() > 1) row->pair = fields_[places_[1]];
    return true;
  }
  std::size_t bytes() const override { return file_.bytes.size(); }
  std::size_t bytes_left() const override { return reader_.bytes_left(); }

 private:
  const MappedFile file_;
  const Wanted columns_;
  CsvReader reader_;
  std::vector<std::size_t> places_;  // of the columns in a row
  std::vector<std::string> fields_;
};

// Objects of which one or two strings are read; other members may have any value.
class JsonLines final : public TextFileReader {
 public:
  JsonLines(MappedFile file, Wanted columns)
      : file_(std::move(file)), columns_(std::move(columns)), rest_(file_.bytes.text()) {}

  // Blank lines are skipped. The columns are chosen by the first object.
  Result<bool> Next(TextRow* row) override {
    std::string_view line;
    do {
      if (rest_.empty()) return false;
      ++line_;
      line = TakeLine(&rest_);
    } while (line.find_first_not_of(" \t") == line.npos);
    const Status read = Read(line, row);
    if (!read.ok()) return file_.At(line_, read);
    return true;
  }
  std::size_t bytes() const override { return file_.bytes.size(); }
  std::size_t bytes_left() const override { return rest_.size(); }

 private:
  // One line. A text that is null, a number or missing is an error, since an answer for it would be
  // that of another text.
  Status Read(std::string_view line, TextRow* row) {
    TROOP_ASSIGN_OR_RETURN(const JsonValue json, ParseJson(line));
    if (json.kind != JsonValue::Kind::kObject)
      return InvalidArgument("not an object; a line is like {{\"text\": \"…\"}}");
    // The keys of the first object stand for all, like the header of a table.
    if (chosen_.empty()) {
      std::vector<std::string> keys;
      for (const auto& [key, unused] : json.object) keys.push_back(key);
      TROOP_ASSIGN_OR_RETURN(chosen_, columns_.In(keys));
    }
    TROOP_ASSIGN_OR_RETURN(row->text, json.String(chosen_[0]));
    row->pair.reset();
    if (chosen_.size() > 1) {
      TROOP_ASSIGN_OR_RETURN(row->pair, json.String(chosen_[1]));
    }
    return Status::Ok();
  }

  const MappedFile file_;
  const Wanted columns_;
  std::string_view rest_;
  std::size_t line_ = 0;
  std::vector<std::string> chosen_;
};

constexpr std::size_t kUnpackedBytesMax = std::size_t{2} << 30;  // limit for a compressed file

// Kind of a file: its extension, without that of the compression.
std::string KindOf(const fs::path& path) {
  const std::string kind = path.extension().string();
  return kind == ".gz" || kind == ".xz" ? path.stem().extension().string() : kind;
}

// The bytes of a file, without a byte order mark.
Result<MappedFile> OpenFile(const std::string& path, const fs::path& whole) {
  TROOP_ASSIGN_OR_RETURN(const auto folder, MakeDiskStorage(whole.parent_path().string()));
  MappedFile file{path, {}};
  // The pages of a mapped file are dropped by the system after they were read.
  TROOP_ASSIGN_OR_RETURN(file.bytes, folder->Map(whole.filename().string()));
  const Compression compression = CompressionOf(path);
  if (compression != Compression::kNone) {
    const auto unpacked = Decompress(file.bytes.text(), compression, kUnpackedBytesMax);
    if (!unpacked.ok()) return unpacked.status().WithContext(path);
    file.bytes = Buffer::Copy(*unpacked);
  }
  // A byte order mark is not text.
  if (file.bytes.text().starts_with("\xEF\xBB\xBF"))
    file.bytes = file.bytes.Slice(3, file.bytes.size() - 3);
  return file;
}

// The character between the fields of a table. The settings of training apply to any file that has
// fields; a flag must apply to this one. Errors: kInvalidArgument.
Result<char> DelimiterOf(const std::string& path, const TextFileFormat& format) {
  const std::string kind = KindOf(path);
  if (kind != ".csv" && kind != ".tsv" && !format.delimiter.empty()) {
    return InvalidArgument("--delimiter: {} is not a .csv or .tsv, so it has no delimiter; omit it",
                           path);
  }
  if (format.delimiter.size() > 1 || format.delimiter.find_first_of("\"\r\n") == 0) {
    return InvalidArgument("--delimiter is {:?}, must be one byte: no quote and no line end",
                           format.delimiter);
  }
  if (!format.delimiter.empty()) return format.delimiter.front();
  if (!format.usual_delimiter.empty()) return format.usual_delimiter.front();
  return kind == ".tsv" ? '\t' : ',';
}

}  // namespace

// The extension alone decides, so that a damaged file is not read as another format.
Result<std::unique_ptr<TextFileReader>> TextFileReader::Open(const std::string& path,
                                                             const TextFileFormat& format) {
  if (format.columns.size() > 2) {
    return InvalidArgument("--text-column is given {} times, must be at most 2: a text, or a pair",
                           format.columns.size());
  }
  std::error_code error;
  const fs::path whole = fs::absolute(path, error);
  if (!fs::is_regular_file(whole, error)) {
    return NotFound("{}: {}", path, fs::exists(whole, error) ? "not a file" : "no such file");
  }
  // Other compressed or binary files would otherwise be read as lines of text.
  const std::string kind = KindOf(whole);
  for (const char* const other : {".tgz", ".bz2", ".zst", ".zip", ".tar", ".parquet"}) {
    if (kind == other) {
      return InvalidArgument("{}: {} is not read; convert it to .csv, .tsv or .jsonl", path, kind);
    }
  }
  TROOP_ASSIGN_OR_RETURN(const char delimiter, DelimiterOf(path, format));
  TROOP_ASSIGN_OR_RETURN(MappedFile file, OpenFile(path, whole));
  const Wanted wanted{format.columns, format.usual_columns};
  if (kind == ".csv" || kind == ".tsv") {
    auto csv = std::make_unique<CsvFile>(std::move(file), wanted, delimiter);
    TROOP_RETURN_IF_ERROR(csv->Begin());
    return std::unique_ptr<TextFileReader>(std::move(csv));
  }
  if (kind == ".jsonl" || kind == ".json" || kind == ".ndjson")
    return std::unique_ptr<TextFileReader>(new JsonLines(std::move(file), wanted));
  if (!format.columns.empty()) {
    return InvalidArgument(
        "--text-column: {} has one text per line; omit it, or use .csv or .jsonl", path);
  }
  return std::unique_ptr<TextFileReader>(new LineReader(std::move(file)));
}

}  // namespace troop
