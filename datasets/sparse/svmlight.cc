// Implements the reader of svmlight and libsvm files.

#include "datasets/sparse/svmlight.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <system_error>

#include "core/storage/read_file.h"

namespace troop {
namespace {

// Larger files would need more than 8 GiB as rows and labels.
constexpr std::size_t kBytesMax = std::size_t{1} << 31;
constexpr std::string_view kSpaces = " \t\r\v\f";
constexpr std::size_t kShownMax = 40;  // characters of a damaged field in a message

// Cuts the next field off the front of *line; empty: the line has ended.
std::string_view NextField(std::string_view* line) {
  line->remove_prefix(std::min(line->find_first_not_of(kSpaces), line->size()));
  const std::string_view field = line->substr(0, line->find_first_of(kSpaces));
  line->remove_prefix(field.size());
  return field;
}

// The whole text as a number; nullopt: it is something else, or out of range. from_chars accepts no
// plus sign.
template <class T>
std::optional<T> Number(std::string_view text) {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Parser of one file, line by line.
class Parser {
 public:
  Parser(std::string_view path, const SvmlightOptions& options) : path_(path), options_(options) {}

  // Adds a line; `number` is its number, from 1.
  Status Add(std::string_view line, std::int64_t number) {
    line_ = number;
    line = line.substr(0, line.find('#'));
    const std::string_view label = NextField(&line);
    // A blank line, or one with a comment only.
    if (label.empty()) return Status::Ok();
    if (label.find(':') != label.npos) {
      return Wrong("begins with {:?}, must begin with a label; add it", label);
    }
    std::int64_t before = -1;
    bool first = true;
    for (std::string_view f = NextField(&line); !f.empty(); f = NextField(&line), first = false) {
      if (first && f.starts_with("qid:")) continue;
      TROOP_RETURN_IF_ERROR(AddEntry(f, &before));
    }
    data_.rows.EndRow();
    data_.labels.push_back(Labels(label));
    data_.lines.push_back(number);
    return Status::Ok();
  }

  // The result, with the width of the widest row if none is given.
  Result<SvmlightData> Take() && {
    if (data_.rows.size() == 0) {
      return InvalidArgument("{}: has no examples; name a file with lines LABEL INDEX:VALUE",
                             path_);
    }
    data_.rows.width = options_.width > 0 ? options_.width : largest_ + 1;
    return std::move(data_);
  }

 private:
  // An error of the current line. shown: a field of it, shortened.
  Status Wrong(fmt::format_string<std::string_view> format, std::string_view shown) const {
    return InvalidArgument("{}: line {}: {}", path_, line_,
                           fmt::format(format, shown.substr(0, kShownMax)));
  }

  // Adds INDEX:VALUE. *before: column of the entry before it.
  Status AddEntry(std::string_view field, std::int64_t* before) {
    // Step 1: the index.
    const std::size_t colon = field.find(':');
    if (colon == field.npos) return Wrong("{:?} is not INDEX:VALUE; correct it", field);
    const auto index = Number<std::int64_t>(field.substr(0, colon));
    if (!index) return Wrong("the index of {:?} is not an integer; correct it", field);
    // A negative index is reported first, since it is wrong in both forms.
    const std::int64_t base = options_.zero_based ? 0 : 1;
    if (*index < 0) return Wrong("the index of {:?} is negative; count from 0 or 1", field);
    if (*index < base) {
      return Wrong("the index of {:?} is less than 1; count from 1, as libsvm does", field);
    }
    const std::int64_t limit = options_.width > 0 ? options_.width : kSparseWidthMax;
    if (*index - base >= limit) {
      return InvalidArgument("{}: line {}: the index {} exceeds the number of features, {}{}",
                             path_, line_, *index, limit,
                             options_.width > 0 ? "; raise it, or remove the entry" : "");
    }
    const std::int64_t column = *index - base;
    if (column <= *before) {
      return InvalidArgument(
          "{}: line {}: the index {} follows {}; sort the indices of a line, each at most once",
          path_, line_, *index, *before + base);
    }
    *before = column;
    largest_ = std::max(largest_, column);
    // Step 2: the value, whose range is that of f32.
    const auto value = Number<double>(field.substr(colon + 1));
    if (!value || !std::isfinite(float(*value))) {
      return Wrong("the value of {:?} is not a finite number; correct it", field);
    }
    // A stored zero changes nothing.
    if (*value == 0) return Status::Ok();
    data_.rows.columns.push_back(std::int32_t(column));
    data_.rows.values.push_back(float(*value));
    return Status::Ok();
  }

  // Labels are separated by commas.
  static std::vector<std::string> Labels(std::string_view text) {
    std::vector<std::string> labels;
    for (std::size_t comma = 0; comma != text.npos;) {
      comma = text.find(',');
      labels.emplace_back(text.substr(0, comma));
      if (comma != text.npos) text.remove_prefix(comma + 1);
    }
    return labels;
  }

  const std::string path_;
  const SvmlightOptions options_;
  SvmlightData data_;
  std::int64_t line_ = 0, largest_ = -1;
};

}  // namespace

// A last line without a line end counts too.
Result<SvmlightData> ParseSvmlight(std::string_view path, std::string_view content,
                                   const SvmlightOptions& options) {
  Parser parser(path, options);
  for (std::int64_t number = 1; !content.empty(); ++number) {
    const std::size_t end = std::min(content.find('\n'), content.size());
    TROOP_RETURN_IF_ERROR(parser.Add(content.substr(0, end), number));
    content.remove_prefix(std::min(end + 1, content.size()));
  }
  return std::move(parser).Take();
}

// The whole file is read at once; rows take about half of its bytes.
Result<SvmlightData> ReadSvmlight(const std::string& path, const SvmlightOptions& options) {
  TROOP_ASSIGN_OR_RETURN(const std::string content, ReadFile(path, kBytesMax));
  return ParseSvmlight(path, content, options);
}

}  // namespace troop
