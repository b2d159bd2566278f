// Implements the readers of tables of examples: delimited text and JSON Lines.

#include "datasets/text/text_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/log.h"
#include "core/base/phase_progress.h"
#include "core/storage/json.h"
#include "datasets/text/csv.h"
#include "datasets/text/label_map.h"
#include "datasets/tokenizers/unicode.h"

namespace troop {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kShownBytes = 40;  // of a column's name in a message

// Names of text columns in published data sets (GLUE, SNLI, IMDB, Hugging Face's scripts).
const std::vector<std::vector<std::string>> kTextNames = {{"premise", "hypothesis"},
                                                          {"sentence1", "sentence2"},
                                                          {"text_a", "text_b"},
                                                          {"text", "text_pair"},
                                                          {"question1", "question2"},
                                                          {"text"},
                                                          {"review"},
                                                          {"sentence"}};
const std::vector<std::string> kLabelNames = {"label",    "labels", "sentiment", "class",
                                              "category", "target", "rating",    "score"};

// True if there is a column of this name.
bool Has(std::span<const std::string> names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

// Removes spaces, tabs and line ends at both ends.
std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  const std::size_t begin = std::min(text.find_first_not_of(kSpaces), text.size());
  text.remove_prefix(begin);
  return text.substr(0, text.find_last_not_of(kSpaces) + 1);
}

// Rows of one kind that deserve a log line: their number and the first lines.
struct Oddity {
  const char* what;
  std::int64_t rows = 0;
  std::vector<std::int64_t> first{};
  void Add(std::int64_t line) {
    constexpr std::size_t kLines = 3;
    ++rows;
    if (first.size() < kLines) first.push_back(line);
  }
  void Report(const std::string& path) const {
    if (rows == 0) return;
    LogWarning("{}: {}: {} (first: line {})", path, what, rows, fmt::join(first, ", "));
  }
};

// Collects examples of a table, and what is unusual about them.
class TableCollector {
 public:
  TableCollector(const TextFormat& format, bool pairs) : format_(format) { out_.pairs = pairs; }

  // Errors: kInvalidArgument with the line.
  Status Add(LabeledText example) {
    for (std::string& label : example.labels) {
      label = Trimmed(label);
      if (!IsUtf8(label)) {
        return InvalidArgument("line {}: the label is not UTF-8; convert the file, for example {}",
                               example.line, kConvert);
      }
      if (label.empty()) return InvalidArgument("line {}: a label is empty", example.line);
    }
    // Counted once per row, for the log line at the end.
    if (!IsUtf8(example.text) || !IsUtf8(example.second)) damaged_.Add(example.line);
    const bool empty = Trimmed(example.text).empty();
    if (empty || (out_.pairs && Trimmed(example.second).empty())) empty_.Add(example.line);
    if (format_.labeled && !example.labeled) unlabeled_.Add(example.line);
    some_text_ = some_text_ || !empty;
    some_second_ = some_second_ || !Trimmed(example.second).empty();
    out_.train.push_back(std::move(example));
    return Status::Ok();
  }

  // Reports to the log. Errors: kInvalidArgument: no rows, no label, or a column without text.
  Result<LabeledTexts> Finish(const std::string& path, const TextColumns& columns) {
    if (out_.train.empty()) return InvalidArgument("it has no examples; add rows");
    for (const auto& [filled, column] : {std::pair{some_text_, 0}, {some_second_, 1}}) {
      if (filled || std::size_t(column) >= columns.texts.size()) continue;
      return InvalidArgument(
          "the text column {:?} is empty in all {} rows; set data.text_columns to other columns",
          columns.texts[std::size_t(column)], out_.train.size());
    }
    if (format_.labeled && unlabeled_.rows == std::ssize(out_.train)) {
      return InvalidArgument(
          "the label column {:?} is empty in all {} rows; set data.label_column to another column",
          columns.label, out_.train.size());
    }
    for (const Oddity* oddity : {&damaged_, &empty_, &unlabeled_}) oddity->Report(path);
    return std::move(out_);
  }

 private:
  static constexpr const char* kConvert = "with iconv -f latin1 -t utf-8";
  const TextFormat& format_;
  LabeledTexts out_;
  bool some_text_ = false, some_second_ = false;
  Oddity damaged_{
      "rows that are not UTF-8, whose invalid bytes become U+FFFD; convert the file, for example "
      "with iconv -f latin1 -t utf-8"};
  Oddity empty_{"rows with an empty text, which are kept"};
  Oddity unlabeled_{"rows without label, which are left out"};
};

// Sets the labels of an example from a text: one, or (multi-label) those between bars.
void SetLabels(std::string_view text, ProblemType problem, LabeledText* example) {
  text = Trimmed(text);
  if (problem != ProblemType::kMultiLabel) {
    example->labeled = !text.empty();
    if (example->labeled) example->labels = {std::string(text)};
    return;
  }
  // No text: an example of no class.
  example->labeled = true;
  while (!text.empty()) {
    const std::size_t bar = std::min(text.find('|'), text.size());
    example->labels.emplace_back(text.substr(0, bar));
    text.remove_prefix(std::min(bar + 1, text.size()));
  }
}

// A label of JSON as text; nullopt: not a string, number or boolean.
std::optional<std::string> LabelText(const JsonValue& value) {
  switch (value.kind) {
    case JsonValue::Kind::kString:
      return value.string;
    case JsonValue::Kind::kBool:
      return value.boolean ? "true" : "false";
    case JsonValue::Kind::kNumber:
      return value.integer ? std::to_string(*value.integer) : fmt::format("{}", value.number);
    default:
      return std::nullopt;
  }
}

// Sets the labels of an example from a field of JSON. value: nullptr: absent.
Status SetJsonLabels(const JsonValue* value, const TextFormat& format, LabeledText* example) {
  if (value == nullptr || value->kind == JsonValue::Kind::kNull) return Status::Ok();
  const bool list = value->kind == JsonValue::Kind::kArray;
  if (list && format.problem_type != ProblemType::kMultiLabel) {
    return InvalidArgument(
        "line {}: the label is a list; set model.problem_type = \"multi_label_classification\"",
        example->line);
  }
  const auto invalid = [&] {
    return InvalidArgument(
        "line {}: the label must be a string, a number or a boolean{}", example->line,
        format.problem_type == ProblemType::kMultiLabel ? ", or a list of them" : "");
  };
  if (!list) {
    const std::optional<std::string> text = LabelText(*value);
    if (!text) return invalid();
    SetLabels(*text, format.problem_type, example);
    return Status::Ok();
  }
  example->labeled = true;
  for (const JsonValue& entry : value->array) {
    std::optional<std::string> text = LabelText(entry);
    if (!text) return invalid();
    example->labels.push_back(*std::move(text));
  }
  return Status::Ok();
}

// The header of a table, whose rows follow in `reader`.
Result<std::vector<std::string>> ReadHeader(CsvReader* reader) {
  std::vector<std::string> fields;
  TROOP_ASSIGN_OR_RETURN(const bool header, reader->Next(&fields));
  if (!header) return InvalidArgument("it is empty; its first line must name the columns");
  // Spaces after the delimiter are common in headers.
  for (std::string& name : fields) name = Trimmed(name);
  return fields;
}

// Reads .csv and .tsv, whose first row has the names of the columns.
Result<LabeledTexts> ReadDelimited(const std::string& path, std::string_view content,
                                   char delimiter, const TextFormat& format) {
  CsvReader reader(content, delimiter);
  TROOP_ASSIGN_OR_RETURN(std::vector<std::string> fields, ReadHeader(&reader));
  TROOP_ASSIGN_OR_RETURN(const TextColumns columns, ChooseTextColumns(fields, format));
  // Places of the columns; the number of columns stands for one that is not read.
  const auto index = [&fields](const std::string& name) {
    return std::size_t(std::ranges::find(fields, name) - fields.begin());
  };
  const std::size_t count = fields.size(), first = index(columns.texts.front());
  const bool pairs = columns.texts.size() == 2;
  const std::size_t second = pairs ? index(columns.texts.back()) : count;
  const std::size_t label = index(columns.label);
  TableCollector collector(format, pairs);
  PhaseProgress progress("parsing", "MiB", std::int64_t(content.size() / kMiB));
  for (;;) {
    progress.Show(std::int64_t((content.size() - reader.bytes_left()) / kMiB));
    TROOP_ASSIGN_OR_RETURN(const bool more, reader.Next(&fields));
    if (!more) return collector.Finish(path, columns);
    if (fields.size() != count) {
      return DataLoss(
          "line {}: {} fields, expected {}; quote fields that contain the delimiter, or set "
          "data.delimiter",
          reader.line(), fields.size(), count);
    }
    LabeledText example{.line = std::int64_t(reader.line())};
    if (!columns.label.empty()) SetLabels(fields[label], format.problem_type, &example);
    example.text = std::move(fields[first]);
    if (pairs) example.second = std::move(fields[second]);
    TROOP_RETURN_IF_ERROR(collector.Add(std::move(example)));
  }
}

// The text of a field of JSON: a string, or null for an empty one.
Result<std::string> JsonTextOf(const JsonValue& row, const std::string& column, std::int64_t line) {
  const JsonValue* const value = row.Find(column);
  if (value == nullptr) return InvalidArgument("line {}: it has no key {:?}", line, column);
  if (value->kind == JsonValue::Kind::kNull) return std::string();
  if (value->kind == JsonValue::Kind::kString) return value->string;
  return InvalidArgument("line {}: {:?} is not a string", line, column);
}

// Reads .jsonl. The keys of the first object decide about the columns.
Result<LabeledTexts> ReadJsonLines(const std::string& path, std::string_view content,
                                   const TextFormat& format) {
  std::optional<TextColumns> columns;
  std::optional<TableCollector> collector;
  PhaseProgress progress("parsing", "MiB", std::int64_t(content.size() / kMiB));
  if (content.starts_with("\xEF\xBB\xBF")) content.remove_prefix(3);
  std::int64_t line = 0;
  for (std::string_view rest = content; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view json = Trimmed(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    ++line;
    progress.Show(std::int64_t((content.size() - rest.size()) / kMiB));
    if (json.empty()) continue;
    // The usual other form of JSON data sets.
    if (!columns && json.front() == '[') {
      return InvalidArgument(
          "it is a JSON array; write an object per line, for example with jq -c '.[]'");
    }
    const Result<JsonValue> row = ParseJson(json);
    if (!row.ok()) return row.status().WithContext(fmt::format("line {}", line));
    if (row->kind != JsonValue::Kind::kObject) {
      return InvalidArgument("line {}: it is not an object ({{\"text\": …, \"label\": …}})", line);
    }
    if (!columns) {
      std::vector<std::string> keys;
      for (const auto& [key, value] : row->object) keys.push_back(key);
      TROOP_ASSIGN_OR_RETURN(columns, ChooseTextColumns(keys, format));
      collector.emplace(format, columns->texts.size() == 2);
    }
    LabeledText example{.line = line};
    TROOP_ASSIGN_OR_RETURN(example.text, JsonTextOf(*row, columns->texts.front(), line));
    if (columns->texts.size() == 2) {
      TROOP_ASSIGN_OR_RETURN(example.second, JsonTextOf(*row, columns->texts.back(), line));
    }
    if (!columns->label.empty()) {
      TROOP_RETURN_IF_ERROR(SetJsonLabels(row->Find(columns->label), format, &example));
    }
    TROOP_RETURN_IF_ERROR(collector->Add(std::move(example)));
  }
  if (!collector) return InvalidArgument("it has no examples; add an object per line");
  return collector->Finish(path, *columns);
}

// The names of columns for messages.
std::string ListOf(std::span<const std::string> names) {
  constexpr std::size_t kShown = 20;
  std::vector<std::string> shown;
  for (const std::string& name : names.first(std::min(kShown, names.size()))) {
    shown.push_back(name.substr(0, kShownBytes));
    // A character that was cut, or a name in another encoding.
    while (!IsUtf8(shown.back())) shown.back().pop_back();
  }
  return fmt::format("{}{}", fmt::join(shown, ", "), names.size() > kShown ? ", …" : "");
}

// The character between fields. Errors: kInvalidArgument: a setting that the kind does not have.
Result<char> DelimiterOf(TextSourceKind kind, const TextFormat& format) {
  if (kind == TextSourceKind::kJsonLines && !format.delimiter.empty()) {
    return InvalidArgument("data.delimiter is {:?}, but JSON Lines have none; omit it",
                           format.delimiter);
  }
  if (format.delimiter.size() > 1 || format.delimiter.find_first_of("\"\r\n") == 0) {
    return InvalidArgument("data.delimiter is {:?}, must be one byte: no quote and no line end",
                           format.delimiter);
  }
  if (!format.delimiter.empty()) return format.delimiter.front();
  return kind == TextSourceKind::kTsv ? '\t' : ',';
}

// A column that the config names must exist.
Status CheckColumn(std::span<const std::string> names, const std::string& key,
                   const std::string& name) {
  const auto count = std::ranges::count(names, name);
  if (count == 1) return Status::Ok();
  if (count > 1) return InvalidArgument("it has {} columns {:?}; rename all but one", count, name);
  return InvalidArgument(
      "{} names {:?}, but the columns are {}; set it to one of them, or add a first line with the "
      "names if there is none",
      key, name, ListOf(names));
}

}  // namespace

// Known names are searched only where the config has none.
std::span<const std::vector<std::string>> KnownTextColumns() { return kTextNames; }

Result<TextColumns> ChooseTextColumns(std::span<const std::string> names,
                                      const TextFormat& format) {
  TextColumns columns{.texts = format.text_columns, .label = format.label_column};
  // Step 1: the texts.
  if (columns.texts.empty()) {
    const auto found = std::ranges::find_if(kTextNames, [&](const auto& group) {
      return std::ranges::all_of(group, [&](const auto& name) { return Has(names, name); });
    });
    if (found == kTextNames.end()) {
      return InvalidArgument(
          "none of the columns {} is known as a text (text, review, sentence, …); set "
          "data.text_columns, and add a first line with the names if there is none",
          ListOf(names));
    }
    columns.texts = *found;
  }
  for (const std::string& name : columns.texts) {
    TROOP_RETURN_IF_ERROR(CheckColumn(names, "data.text_columns", name));
  }
  // Step 2: the label, where there must not be a doubt.
  if (!format.labeled) {
    columns.label.clear();
    return columns;
  }
  if (columns.label.empty()) {
    std::vector<std::string> found;
    for (const std::string& name : kLabelNames) {
      if (Has(names, name) && !Has(columns.texts, name)) found.push_back(name);
    }
    if (found.size() != 1) {
      return InvalidArgument("{} of the columns {} is a label by its name; set data.label_column",
                             found.empty() ? "none" : "more than one", ListOf(names));
    }
    columns.label = found.front();
  }
  TROOP_RETURN_IF_ERROR(CheckColumn(names, "data.label_column", columns.label));
  if (!Has(columns.texts, columns.label)) return columns;
  return InvalidArgument("data.label_column {:?} is also a text column; set another one",
                         columns.label);
}

// Settings that the kind does not use are errors.
Result<LabeledTexts> ReadTextTable(const std::string& path, std::string_view content,
                                   TextSourceKind kind, const TextFormat& format) {
  TROOP_ASSIGN_OR_RETURN(const char delimiter, DelimiterOf(kind, format));
  if (kind == TextSourceKind::kJsonLines) return ReadJsonLines(path, content, format);
  return ReadDelimited(path, content, delimiter, format);
}

// Nothing after the first row is parsed.
Result<std::vector<std::string>> ColumnsOfTable(std::string_view content, TextSourceKind kind,
                                                const TextFormat& format) {
  TROOP_ASSIGN_OR_RETURN(const char delimiter, DelimiterOf(kind, format));
  if (kind != TextSourceKind::kJsonLines) {
    CsvReader reader(content, delimiter);
    return ReadHeader(&reader);
  }
  if (content.starts_with("\xEF\xBB\xBF")) content.remove_prefix(3);
  content = content.substr(std::min(content.find_first_not_of(" \t\r\n"), content.size()));
  TROOP_ASSIGN_OR_RETURN(const JsonValue row, ParseJson(content.substr(0, content.find('\n'))));
  std::vector<std::string> keys;
  for (const auto& [key, value] : row.object) keys.push_back(key);
  return keys;
}

}  // namespace troop
