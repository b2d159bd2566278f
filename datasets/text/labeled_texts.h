#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/config/problem_type.h"

namespace troop {

// An example of text classification or regression, before its label is converted.
struct LabeledText {
  std::string text;
  std::string second{};               // the other text of a pair
  std::vector<std::string> labels{};  // as written; multi-label: any number of them
  bool labeled = false;               // false: there is no label, which differs from no class
  std::int64_t line = 0;              // of its table, from 1; 0: a file of a folder
};

// A data set as it was read. The order of the examples does not depend on the file system.
struct LabeledTexts {
  std::vector<LabeledText> train, validation, test, unlabeled;
  bool pairs = false;                // every example has a second text
  std::vector<std::string> names{};  // classes by id, if the format defines them: those of aclImdb
  std::size_t size() const {
    return train.size() + validation.size() + test.size() + unlabeled.size();
  }
};

// How a source is read. The first three apply to tables only.
struct TextFormat {
  std::vector<std::string> text_columns{};  // one or two; empty: found by their names
  std::string label_column{};               // empty: found by its name
  std::string delimiter{};                  // of .csv and .tsv; empty: by the file's name
  ProblemType problem_type = ProblemType::kSingleLabel;
  bool labeled = true;  // false: labels are not read (aclImdb's are), as for masked_lm
};

// Kind of a source, judged by its name: .csv, .tsv and .jsonl (.json, .ndjson), each also with .gz
// or .xz; .tar, .tar.gz (.tgz) and .tar.xz. nullopt: another name.
enum class TextSourceKind : std::uint8_t { kCsv, kTsv, kJsonLines, kArchive };
std::optional<TextSourceKind> TextSourceKindOf(std::string_view path);
// True if it is a table (.csv, .tsv, .jsonl).
bool IsTextTable(std::string_view path);

// Reads the examples at `path`:
//   a folder         SET/CLASS/*.txt with the sets train, validation and test (unsup: a class of
//                    examples without label), or CLASS/*.txt: all in `train`
//   an archive       of such a folder
//   a table          one example per row, all in `train` (datasets/text/text_table.h)
// The folder aclImdb is recognized by its file names (datasets/text/imdb_reviews.h). If a file
// SHA256SUMS in the same folder lists the file, its checksum is verified first. Blocks on the disk.
// Errors are one line with path and remedy: kNotFound; kDataLoss: damage; kResourceExhausted: more
// than 2 GiB; kInvalidArgument: other content.
Result<LabeledTexts> ReadTexts(const std::string& path, const TextFormat& format = {});

// Names of the text columns that ReadTexts chooses in a table; empty: `path` is not a table. Reads
// the file, but parses the first row only. Errors: as ReadTexts, without the address.
Result<std::vector<std::string>> FindTextColumns(const std::string& path, const TextFormat& format);

// True if `path` has separate test examples, judged by its name and folders alone. A table and a
// folder without test/ have none; archives are assumed to have them.
bool HasTestTexts(const std::string& path);

}  // namespace troop
