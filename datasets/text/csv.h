#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace troop {

// Reader of delimited tables, row by row, with the rules of pandas.read_csv: those of RFC 4180, and
// for other files the following. A quote that does not begin a field is a plain character, as is
// text after a closing quote. Rows end in \n, \r\n or \r. Lines of spaces and tabs only, and a byte
// order mark at the front, are skipped. A quoted field may contain delimiters, line ends and
// doubled quotes. One owner.
class CsvReader {
 public:
  // `text` must outlive the reader. REQUIRES: the delimiter is neither a quote nor a line end.
  explicit CsvReader(std::string_view text, char delimiter = ',');
  // Reads the fields of the next row; false at the end. Errors: kDataLoss with the line: a quote
  // that is not closed.
  Result<bool> Next(std::vector<std::string>* fields);
  // Line where the last returned row began, from 1.
  std::size_t line() const { return row_line_; }
  std::size_t bytes_left() const { return rest_.size(); }

 private:
  Status ReadField(std::string* field);
  Status ReadQuoted(std::string* field);
  bool TakeLineEnd();
  void SkipBlankLines();

  std::string_view rest_;
  const char delimiter_;
  std::size_t line_ = 1, row_line_ = 0;
};

}  // namespace troop
