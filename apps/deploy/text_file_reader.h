#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/status.h"

namespace troop {

// One text of a file, or a pair of texts.
struct TextRow {
  std::string text;
  std::optional<std::string> pair;
};

// How a file of texts is read. The usual values are those of the training examples.
struct TextFileFormat {
  std::vector<std::string> columns{};  // --text-column: of the text, and of the second of a pair
  std::string delimiter{};             // --delimiter: one byte, of .csv and .tsv; empty: usual
  std::vector<std::string> usual_columns{};
  std::string usual_delimiter{};  // empty: comma or tab, by the file's name
};

// Reads the texts of a file one by one, without their labels. The file is mapped, so memory does
// not grow with its size. By the extension of its name:
//   .csv, .tsv               a table with a header (datasets/text/csv.h)
//   .jsonl, .json, .ndjson   one object per line
//   another                  one text per line
// A file that ends in .gz or .xz as well is decompressed in memory, up to 2 GiB.
// One owner thread.
class TextFileReader {
 public:
  virtual ~TextFileReader() = default;
  // Without format.columns the usual ones are read if they exist, else those of known names
  // (KnownTextColumns). Errors: kNotFound: no file, or no such column (listing those that exist);
  // kInvalidArgument: columns or a delimiter of a file without any, more than two columns, or a
  // file of another kind; those of Decompress, with the path.
  static Result<std::unique_ptr<TextFileReader>> Open(const std::string& path,
                                                      const TextFileFormat& format = {});
  // Reads the next text; false at the end. Errors, with path and line: kDataLoss: damaged;
  // kInvalidArgument: the row has no such column, or not a text there.
  virtual Result<bool> Next(TextRow* row) = 0;
  // Bytes of the file, decompressed, and of them those not read yet, for progress.
  virtual std::size_t bytes() const = 0;
  virtual std::size_t bytes_left() const = 0;
};

}  // namespace troop
