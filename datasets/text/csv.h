#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace troop {

// Reader of comma-separated values as of RFC 4180, row by row: a quoted field may contain commas,
// line ends and doubled quotes. Rows end in \n or \r\n, the last one also at the end of the text. A
// byte order mark at the front and empty lines at the end are skipped. One owner.
class CsvReader {
 public:
  explicit CsvReader(std::string_view text);  // `text` must outlive the reader
  // Reads the fields of the next row; false at the end. Errors: kDataLoss with the line.
  Result<bool> Next(std::vector<std::string>* fields);
  // Line where the last returned row began, from 1.
  std::size_t line() const { return row_line_; }
  std::size_t bytes_left() const { return rest_.size(); }

 private:
  Status ReadField(std::string* field);
  Status ReadQuoted(std::string* field);
  bool TakeLineEnd();

  std::string_view rest_;
  std::size_t line_ = 1, row_line_ = 0;
};

}  // namespace troop
