#pragma once

#include <span>
#include <string>

#include "core/graphics/plot/matrix_plot.h"
#include "core/storage/json.h"
#include "learners/supervised/text_metrics.h"

namespace troop {

// Tables of an evaluation as text: the measures with their intervals, each class, and the confusion
// matrix of up to 20 classes. names: of the classes; missing ones are LABEL_i.
std::string TextScoresTables(const TextScores& scores, std::span<const std::string> names);
// These tables in Markdown. Names are escaped.
std::string TextScoresMarkdown(const TextScores& scores, std::span<const std::string> names);
// The confusion matrix as a picture. REQUIRES: scores with a confusion matrix.
MatrixPlot ConfusionPlot(const TextScores& scores, std::span<const std::string> names);
// Adds the same as members of a JSON object: "metrics", each with "value", "low" and "high"
// (absent: no interval), "classes" by name, and "confusion" (rows: true classes) with "labels", the
// order of both axes. Undefined values are null.
void AddTextScores(const TextScores& scores, std::span<const std::string> names, JsonObject* json);

}  // namespace troop
