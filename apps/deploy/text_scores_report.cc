// Implements the tables and the JSON form of a text model's evaluation.

#include "apps/deploy/text_scores_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

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
