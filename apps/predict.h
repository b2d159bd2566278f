#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "core/status.h"

namespace troop {

// `troop predict`: what a trained model says of texts.
struct PredictOptions {
  std::string path;                // of a model, a checkpoint or a run: see TextPredictor::Load
  std::vector<std::string> texts;  // none: a text a line from standard input
  bool json = false;               // an object a text
};
// Writes a line of each text, as soon as it is read. Errors: those of TextPredictor.
Status PredictTexts(const PredictOptions& options, std::istream& in, std::ostream& out);
// The same from standard input to standard output. Returns the exit code.
int Predict(const PredictOptions& options);

}  // namespace troop
