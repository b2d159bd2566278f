// CSV reader; positions are kept for error messages.

#include "datasets/text/csv.h"

#include <algorithm>

namespace troop {

CsvReader::CsvReader(std::string_view text) : rest_(text) {
  // A byte order mark, which spreadsheet programs write.
  if (rest_.starts_with("\xEF\xBB\xBF")) rest_.remove_prefix(3);
}

// Consumes a line end of either kind if it comes next, and counts the line.
bool CsvReader::TakeLineEnd() {
  const std::size_t bytes = rest_.starts_with("\r\n") ? 2 : rest_.starts_with('\n') ? 1 : 0;
  rest_.remove_prefix(bytes);
  line_ += bytes > 0;
  return bytes > 0;
}

// Reads a quoted field after its opening quote.
Status CsvReader::ReadQuoted(std::string* field) {
  const std::size_t begin = line_;
  for (;;) {
    // A doubled quote stands for one quote; any other ends the field.
    const std::size_t quote = rest_.find('"');
    if (quote == rest_.npos) return DataLoss("line {}: unclosed quote", begin);
    const std::string_view part = rest_.substr(0, quote);
    line_ += std::size_t(std::count(part.begin(), part.end(), '\n'));
    field->append(part);
    rest_.remove_prefix(quote + 1);
    if (!rest_.starts_with('"')) return {};
    field->push_back('"');
    rest_.remove_prefix(1);
  }
}

// Reads one field, quoted or not (RFC 4180). Stops before the comma or the line end.
Status CsvReader::ReadField(std::string* field) {
  if (rest_.starts_with('"')) {
    rest_.remove_prefix(1);
    return ReadQuoted(field);
  }
  const std::size_t end = std::min(rest_.find_first_of(",\n\""), rest_.size());
  *field = rest_.substr(0, end);
  if (rest_.substr(end).starts_with('"')) {
    return DataLoss("line {}: quote inside an unquoted field", line_);
  }
  // The \r of a Windows line end belongs to the line end, not to the field.
  const bool windows = rest_.substr(end).starts_with('\n') && field->ends_with('\r');
  if (windows) field->pop_back();
  rest_.remove_prefix(end - (windows ? 1 : 0));
  return {};
}

// Reads one row; false at the end of the text.
Result<bool> CsvReader::Next(std::vector<std::string>* fields) {
  fields->clear();
  // Only empty lines are left.
  if (rest_.find_first_not_of("\r\n") == rest_.npos) return false;
  row_line_ = line_;
  for (;;) {
    // A row ends at a line end or at the end of the text, never after a comma.
    fields->emplace_back();
    TROOP_RETURN_IF_ERROR(ReadField(&fields->back()));
    if (rest_.empty() || TakeLineEnd()) return true;
    if (rest_.front() != ',') {
      return DataLoss("line {}: text after a closing quote; expected a comma", line_);
    }
    rest_.remove_prefix(1);
  }
}

}  // namespace troop
