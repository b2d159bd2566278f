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

// Reads the texts of a file one by one, without their labels. The file is mapped, so memory does
// not grow with its size. By the extension of its name:
//   .csv, .tsv               a table with a header (datasets/text/csv.h)
//   .jsonl, .json, .ndjson   one object per line
//   another                  one text per line
// One owner thread.
class TextFileReader {
 public:
  virtual ~TextFileReader() = default;
  // columns: names of the column or key of the text, and of the second text of a pair; empty:
  // `usual`, those of the training examples, if they exist, else known names (KnownTextColumns).
  // Errors: kNotFound: no file, or no such column (listing those that exist); kInvalidArgument:
  // columns of a file without any, more than two, or a format that is not read.
  static Result<std::unique_ptr<TextFileReader>> Open(const std::string& path,
                                                      const std::vector<std::string>& columns,
                                                      const std::vector<std::string>& usual = {});
  // Reads the next text; false at the end. Errors, with path and line: kDataLoss: damaged;
  // kInvalidArgument: the row has no such column, or not a text there.
  virtual Result<bool> Next(TextRow* row) = 0;
  // Bytes of the file, and of them those not read yet, for progress.
  virtual std::size_t bytes() const = 0;
  virtual std::size_t bytes_left() const = 0;
};

}  // namespace troop
