#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace troop {

// Comma-separated values as of RFC 4180, row by row: a field in quotes may hold commas, line ends
// and doubled quotes. Rows end in \n or \r\n, the last one also with the text; a byte order mark at
// the front and empty lines at the end are passed over. One owner.
class CsvReader {
 public:
  explicit CsvReader(std::string_view text);  // which must outlive it
  // The fields of the next row; false: there is none. Errors: kDataLoss with the line.
  Result<bool> Next(std::vector<std::string>* fields);
  // Where the row that was returned last began, from 1.
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
