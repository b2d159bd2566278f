#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "learners/supervised/text_predictor.h"

namespace troop {

// A file of texts to predict, and the file of the answers.
struct PredictFileOptions {
  std::string input;                      // see TextFileReader
  std::string output;                     // .csv or .jsonl
  std::vector<std::string> text_columns;  // see TextFileReader
  int threads = 0;                        // 0: one per core
  std::string delimiter{};                // see TextFileFormat
};
struct PredictFileSummary {
  std::int64_t texts = 0, tokens = 0;
  std::int64_t empty = 0;      // without an answer
  std::int64_t truncated = 0;  // at the model's limit
  std::int64_t damaged = 0;    // not UTF-8: invalid bytes are read as U+FFFD
  double seconds = 0;
};
// Predicts all texts of a file on all cores and writes one row per text, in the order of the input;
// replaces an existing output, at the end. Reads windows of some thousand texts, so memory does not
// grow with the file; shows progress (PhaseProgress). Blocks on the disk.
//   .jsonl: the objects of AddTextAnswer, after "text" (and "pair")
//   .csv:   text, (pair,) label and probability_CLASS of each class; or labels joined by | and the
//           probabilities; or value; then tokens and cut. Cells of an empty text have no value.
// Errors: those of TextFileReader and TextPredictor; kInvalidArgument: another extension, a masked
// LM with .csv, or the output is the input.
Result<PredictFileSummary> PredictFile(const TextPredictor& predictor,
                                       const PredictFileOptions& options);

}  // namespace troop
