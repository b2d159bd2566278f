// Hostile files of texts. The first byte says what the rest is: a tar archive, an .xz file, a
// table (CSV or JSON Lines), a .gz file, or a file of cached tokens. What is accepted has labels
// and ids in their bounds, and a cache is written again as the same bytes.
#include <string>

#include "core/base/check.h"
#include "datasets/text/archive_reader.h"
#include "datasets/text/class_folder.h"
#include "datasets/text/csv.h"
#include "datasets/text/label_map.h"
#include "datasets/text/text_table.h"
#include "datasets/text/token_cache.h"
#include "datasets/tokenizers/unicode.h"
#include "tests/datasets/tar_file.h"
#include "tests/fuzz/fuzz.h"

namespace troop {
namespace {

constexpr std::size_t kUnpackedMax = 1 << 20, kFileMax = 1 << 16;
const TokenCacheKey kKey = {.tokenizer = 1, .vocabulary = 50, .max_length = 6, .source = 2};

// Labels are texts in UTF-8 and as many as the problem has.
void CheckTexts(const Result<LabeledTexts>& texts, ProblemType problem) {
  if (!texts.ok()) {
    TROOP_CHECK(!texts.status().message().empty(), "no reason is given");
    return;
  }
  for (const auto* set : {&texts->train, &texts->validation, &texts->test}) {
    for (const LabeledText& example : *set) {
      TROOP_CHECK(example.labeled || example.labels.empty(), "labels without a label");
      TROOP_CHECK(problem == ProblemType::kMultiLabel || example.labels.size() <= 1, "{} labels",
                  example.labels.size());
      for (const std::string& label : example.labels) {
        TROOP_CHECK(!label.empty() && IsUtf8(label), "an empty or damaged label");
      }
    }
  }
  // Each learned name is found again.
  const auto map = LabelMap::Learn(texts->train, problem);
  if (!map.ok()) return;
  for (const std::string& name : map->names()) {
    TROOP_CHECK(map->Find(name).has_value(), "{:?} is not found", name);
  }
}

void CheckTable(std::string_view bytes, TextSourceKind kind) {
  for (const ProblemType problem : {ProblemType::kSingleLabel, ProblemType::kMultiLabel}) {
    CheckTexts(ReadTextTable("x", bytes, kind, {.problem_type = problem}), problem);
  }
}

// The files of an archive as a folder of classes.
void CheckFolder(std::string_view bytes) {
  Result<ArchiveReader> reader = ArchiveReader::Make(
      bytes, {.xz = false, .bytes_max = kUnpackedMax, .file_bytes_max = kFileMax});
  ClassFolderCollector collector;
  while (reader.ok()) {
    const Result<bool> more = reader->Next();
    if (!more.ok()) return;
    if (!*more) break;
    Result<std::string> content = reader->Read();
    if (!content.ok() || !collector.Add(reader->name(), *std::move(content)).ok()) return;
  }
  if (reader.ok()) {
    CheckTexts(collector.Finish(ProblemType::kSingleLabel), ProblemType::kSingleLabel);
  }
}

// Files are within the limits, and the archive ends.
void CheckArchive(std::string_view bytes, bool xz) {
  Result<ArchiveReader> reader =
      ArchiveReader::Make(bytes, {.xz = xz, .bytes_max = kUnpackedMax, .file_bytes_max = kFileMax});
  while (reader.ok()) {
    const Result<bool> more = reader->Next();
    if (!more.ok()) TROOP_CHECK(!more.status().message().empty(), "no reason is given");
    if (!more.ok() || !*more) return;
    TROOP_CHECK(!reader->name().empty(), "a file without a name");
    const Result<std::string> content = reader->Read();
    if (!content.ok()) return;
    TROOP_CHECK(content->size() <= kFileMax, "{} bytes", content->size());
  }
}

// A table of fields, written in quotes, reads as the same table.
void CheckCsv(std::string_view text, char delimiter) {
  CsvReader reader(text, delimiter);
  std::vector<std::string> fields, again;
  for (;;) {
    const Result<bool> more = reader.Next(&fields);
    if (!more.ok() || !*more) return;
    std::string line;
    for (const std::string& field : fields) {
      line += line.empty() ? "\"" : ",\"";
      for (const char c : field) line += c == '"' ? std::string("\"\"") : std::string(1, c);
      line += '"';
    }
    // A row of one empty field is quoted, so that it is not a blank line.
    const Result<bool> read = CsvReader(line).Next(&again);
    TROOP_CHECK(read.ok() && *read && again == fields, "another row came back");
  }
}

void CheckCache(std::string_view bytes) {
  const Result<TokenizedTexts> texts = DecodeTokenCache(bytes, kKey);
  if (!texts.ok()) return;
  TROOP_CHECK(EncodeTokenCache(*texts, kKey) == bytes, "the bytes are not the same");
}

TokenizedTexts SmallSet() {
  TokenizedTexts texts{.names = {"negative", "positive"}};
  texts.train.Add(std::vector<TokenId>{2, 49, 3}, 1);
  texts.unlabeled.Add(std::vector<TokenId>{2, 3}, -1);
  return texts;
}

}  // namespace

void VisitSeeds(const SeedWriter& write) {
  write("tar", '\0' + TarFile("aclImdb/train/pos/0_9.txt", "good") +
                   TarFile("aclImdb/test/neg/0_1.txt", "bad") + TarFile("x", "", '5') + kTarEnd);
  write("tar_pax", '\0' + TarFile("x", "30 mtime=1320000000.123456789\n", 'x') +
                       TarFile("train/unsup/0_0.txt", "?", '0', "aclImdb") + kTarEnd);
  write("xz", std::string("\1\xFD\x37zXZ\0\0\4\xE6\xD6\xB4\x46\0\0\0\0\x1C\xDF\x44\x21", 21) +
                  std::string("\x1F\xB6\xF3\x7D\1\0\0\0\0\4YZ", 12));  // of nothing
  write("csv", "\2review,sentiment\r\n\"a \"\"b\"\",\nc\",positive\r\nd,0\n");
  write("jsonl",
        "\4{\"text\": \"a\", \"label\": [\"x\", 2]}\n\n{\"text\": null, \"label\": null}\n");
  write("gz", std::string("\5\x1F\x8B\x08\0\0\0\0\0\2\3\x4B\x4C\xE2\2\0", 16) +
                  std::string("\x3E\x98\x4A\1\3\0\0\0", 8));  // of "ab\n"
  write("cache", '\3' + EncodeTokenCache(SmallSet(), kKey));
}

}  // namespace troop

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troop;
  QuietLog();
  FuzzInput input(data, size);
  const auto kind = input.Take<std::uint8_t>();
  const std::span<std::byte> rest = input.TakeRest();
  const std::string_view bytes = TextOf(rest);
  switch (kind % 6) {
    case 0:
      CheckFolder(bytes);
      CheckArchive(bytes, false);
      break;
    case 1:
      CheckArchive(bytes, true);
      break;
    case 2:
      CheckTable(bytes, TextSourceKind::kCsv);
      CheckCsv(bytes, ',');
      CheckCsv(bytes, '\t');
      break;
    case 3:
      CheckCache(bytes);
      break;
    case 4:
      CheckTable(bytes, TextSourceKind::kJsonLines);
      break;
    default: {
      const Result<std::string> text = Decompress(bytes, Compression::kGzip, kUnpackedMax);
      TROOP_CHECK(!text.ok() || text->size() <= kUnpackedMax, "more than the limit");
    }
  }
  return 0;
}
