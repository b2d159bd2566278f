// Implements the tables and the JSON form of a text model's evaluation.

#include "apps/deploy/text_scores_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <vector>

namespace troop {
namespace {

// Wider matrices have no readable table; JSON has all of them.
constexpr std::size_t kConfusionColumnsMax = 20;

// Name of class i; a model without names has those of transformers.
std::string NameOf(std::span<const std::string> names, std::size_t i) {
  return i < names.size() ? names[i] : fmt::format("LABEL_{}", i);
}

// A value with four decimals, or a dash if it is undefined.
std::string Cell(std::optional<double> value) {
  return value ? fmt::format("{:.4f}", *value) : std::string("-");
}

// Undefined values are null, so that all classes have the same members.
JsonText Json(std::optional<double> value) { return value ? JsonText(*value) : JsonText(nullptr); }

// Width of the first column: the longest name, in bytes.
std::size_t WidthOf(const TextScores& scores, std::span<const std::string> names) {
  std::size_t width = 5;
  for (std::size_t i = 0; i < scores.classes.size(); ++i)
    width = std::max(width, NameOf(names, i).size());
  return width;
}

// The text as a cell of a Markdown table: labels come from the files of users.
std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view("|\\`*<").find(c) != std::string_view::npos) out += '\\';
    out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return out;
}

// A row of a Markdown table.
std::string Row(std::span<const std::string> cells) {
  return fmt::format("| {} |\n", fmt::join(cells, " | "));
}

// The head of a Markdown table, whose first column has texts and whose others have numbers.
std::string Head(std::span<const std::string> cells) {
  std::string out = Row(cells) + "|---|";
  for (std::size_t i = 1; i < cells.size(); ++i) out += "---:|";
  return out + "\n";
}

}  // namespace

// One line per measure, class and true class.
std::string TextScoresTables(const TextScores& scores, std::span<const std::string> names) {
  std::string out;
  // The measures of all classes together, the main one first.
  for (const TextMetric& metric : scores.metrics) {
    out += fmt::format("{:<9} {}", metric.name, Cell(metric.value));
    if (metric.interval) {
      out += fmt::format(" (95 % interval {} to {})", Cell(metric.interval->low),
                         Cell(metric.interval->high));
    }
    out += "\n";
  }
  if (scores.classes.empty()) return out;
  // The classes one by one, against all others.
  const std::size_t width = WidthOf(scores, names);
  out += fmt::format("\n{:<{}} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}\n", "class", width, "precision",
                     "recall", "f1", "auc", "examples", "predicted");
  for (std::size_t i = 0; i < scores.classes.size(); ++i) {
    const ClassMetrics& one = scores.classes[i];
    out += fmt::format("{:<{}} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}\n", NameOf(names, i), width,
                       Cell(one.precision), Cell(one.recall), Cell(one.f1), Cell(one.auc),
                       one.support, one.predicted);
  }
  const std::size_t classes = scores.confusion.size();
  if (classes == 0 || classes > kConfusionColumnsMax) return out;
  // Columns have the order of the rows, so their names may be cut.
  out += "\nconfusion matrix (rows: true class, columns: predicted class)\n";
  out += fmt::format("{:<{}}", "", width);
  for (std::size_t j = 0; j < classes; ++j) out += fmt::format(" {:>9.9}", NameOf(names, j));
  out += "\n";
  for (std::size_t i = 0; i < classes; ++i) {
    out += fmt::format("{:<{}}", NameOf(names, i), width);
    for (const std::int64_t count : scores.confusion[i]) out += fmt::format(" {:>9}", count);
    out += "\n";
  }
  return out;
}

// The tables of TextScoresTables.
std::string TextScoresMarkdown(const TextScores& scores, std::span<const std::string> names) {
  std::string out = Head(std::vector<std::string>{"measure", "value", "95 % interval"});
  for (const TextMetric& metric : scores.metrics) {
    const std::string interval =
        metric.interval
            ? fmt::format("{} to {}", Cell(metric.interval->low), Cell(metric.interval->high))
            : "-";
    out += Row(std::vector<std::string>{metric.name, Cell(metric.value), interval});
  }
  if (scores.classes.empty()) return out;
  // The classes one by one, against all others.
  out += "\n" + Head(std::vector<std::string>{"class", "precision", "recall", "f1", "auc",
                                              "examples", "predicted"});
  for (std::size_t i = 0; i < scores.classes.size(); ++i) {
    const ClassMetrics& one = scores.classes[i];
    out += Row(std::vector<std::string>{
        Escaped(NameOf(names, i)), Cell(one.precision), Cell(one.recall), Cell(one.f1),
        Cell(one.auc), fmt::to_string(one.support), fmt::to_string(one.predicted)});
  }
  const std::size_t classes = scores.confusion.size();
  if (classes == 0 || classes > kConfusionColumnsMax) return out;
  // Rows are true classes, columns predicted ones.
  std::vector<std::string> cells = {"true class \\ predicted class"};
  for (std::size_t j = 0; j < classes; ++j) cells.push_back(Escaped(NameOf(names, j)));
  out += "\n" + Head(cells);
  for (std::size_t i = 0; i < classes; ++i) {
    cells = {Escaped(NameOf(names, i))};
    for (const std::int64_t count : scores.confusion[i]) cells.push_back(fmt::to_string(count));
    out += Row(cells);
  }
  return out;
}

// The classes have the names that predictions have.
MatrixPlot ConfusionPlot(const TextScores& scores, std::span<const std::string> names) {
  MatrixPlot plot{.title = "Confusion matrix",
                  .row_label = "true class",
                  .column_label = "predicted class",
                  .names = {},
                  .counts = scores.confusion};
  for (std::size_t i = 0; i < scores.confusion.size(); ++i) plot.names.push_back(NameOf(names, i));
  return plot;
}

// "confusion" has all classes, whatever their number.
void AddTextScores(const TextScores& scores, std::span<const std::string> names, JsonObject* json) {
  JsonObject metrics, classes;
  for (const TextMetric& metric : scores.metrics) {
    JsonObject one;
    one.Add("value", metric.value);
    if (metric.interval) one.Add("low", metric.interval->low).Add("high", metric.interval->high);
    metrics.Add(metric.name, one);
  }
  json->Add("metrics", metrics);
  if (scores.classes.empty()) return;
  JsonArray labels, confusion;
  for (std::size_t i = 0; i < scores.classes.size(); ++i) {
    const ClassMetrics& one = scores.classes[i];
    labels.Add(NameOf(names, i));
    classes.Add(NameOf(names, i), JsonObject()
                                      .Add("precision", Json(one.precision))
                                      .Add("recall", Json(one.recall))
                                      .Add("f1", Json(one.f1))
                                      .Add("auc", Json(one.auc))
                                      .Add("examples", one.support)
                                      .Add("predicted", one.predicted));
  }
  json->Add("classes", classes);
  if (scores.confusion.empty()) return;
  for (const auto& row : scores.confusion) confusion.Add(JsonArray::Of(row));
  json->Add("labels", labels).Add("confusion", confusion);
}

}  // namespace troop
