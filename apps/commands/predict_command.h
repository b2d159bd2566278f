#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "apps/command_line.h"
#include "apps/deploy/predict_file.h"
#include "core/base/status.h"

namespace troop {

// Options of `troop predict`: classify texts, or predict the masked tokens in them.
struct PredictOptions {
  std::string path;                // model, checkpoint or run folder: see TextPredictor::Load
  std::vector<std::string> texts;  // none: one text per line from standard input
  std::string text_pair;           // second text of a single text
  bool json = false;               // print one object per text
  bool best = false;               // use the best checkpoint of a run folder, not the newest
  PredictFileOptions file;         // of --input and --output
};
// Writes one line per text to `out`, as soon as the text is read, or per image file, if the model
// classifies images (PredictImages). Errors: those of TextPredictor and PredictImages.
Status PredictTexts(const PredictOptions& options, std::istream& in, std::ostream& out);
// PredictTexts from standard input to standard output, or PredictFile. Returns the exit code.
int Predict(const PredictOptions& options);

// Adds `troop predict` to `app`.
void RegisterPredict(CLI::App& app, ChosenCommand* chosen);

}  // namespace troop
