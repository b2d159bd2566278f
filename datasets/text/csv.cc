// Reader of delimited tables; positions are kept for error messages.

#include "datasets/text/csv.h"

#include <algorithm>

namespace troop {

CsvReader::CsvReader(std::string_view text, char delimiter) : rest_(text), delimiter_(delimiter) {
  // A byte order mark, which spreadsheet programs write.
  if (rest_.starts_with("\xEF\xBB\xBF")) rest_.remove_prefix(3);
}

// Consumes a line end of any kind if it comes next, and counts the line.
bool CsvReader::TakeLineEnd() {
  const std::size_t bytes = rest_.starts_with("\r\n")                            ? 2
                            : rest_.starts_with('\n') || rest_.starts_with('\r') ? 1
                                                                                 : 0;
  rest_.remove_prefix(bytes);
  line_ += bytes > 0;
  return bytes > 0;
}

// Skips lines without content. A tab is content if it separates fields.
void CsvReader::SkipBlankLines() {
  for (;;) {
    std::size_t end = 0;
    while (end < rest_.size() && rest_[end] != delimiter_ &&
           (rest_[end] == ' ' || rest_[end] == '\t')) {
      ++end;
    }
    const std::string_view after = rest_.substr(end);
    if (!after.empty() && after.front() != '\n' && after.front() != '\r') return;
    rest_ = after;
    if (!TakeLineEnd()) return;
  }
}

// Reads a quoted field after its opening quote, up to the closing one.
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

// Reads one field, quoted or not. Stops before the delimiter or the line end.
Status CsvReader::ReadField(std::string* field) {
  if (rest_.starts_with('"')) {
    rest_.remove_prefix(1);
    TROOP_RETURN_IF_ERROR(ReadQuoted(field));
  }
  // Plain text, also after a closing quote.
  const char ends[] = {delimiter_, '\n', '\r'};
  const std::size_t end =
      std::min(rest_.find_first_of(std::string_view(ends, sizeof ends)), rest_.size());
  field->append(rest_.substr(0, end));
  rest_.remove_prefix(end);
  return {};
}

// Reads one row; false at the end of the text.
Result<bool> CsvReader::Next(std::vector<std::string>* fields) {
  fields->clear();
  SkipBlankLines();
  if (rest_.empty()) return false;
  row_line_ = line_;
  for (;;) {
    // A row ends at a line end or at the end of the text, never after a delimiter.
    fields->emplace_back();
    TROOP_RETURN_IF_ERROR(ReadField(&fields->back()));
    if (rest_.empty() || TakeLineEnd()) return true;
    rest_.remove_prefix(1);
  }
}

}  // namespace troop
