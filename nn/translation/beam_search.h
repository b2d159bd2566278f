#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace troop {

// Settings of BeamSearch.
struct BeamOptions {
  std::int64_t beam = 4;          // hypotheses; 1: greedy
  double length_penalty = 0.6;    // α of eq. 14; 0: none
  double coverage_penalty = 0.2;  // β of eq. 14; 0: none
  std::int64_t length_max = 128;  // tokens, the end included
  std::int32_t begin = 1, end = 2;
};

// One step of all R live hypotheses: row r extends row parents[r] of the step before by tokens[r].
// The first step has one row, whose token is the begin.
struct BeamStep {
  std::span<const std::int32_t> parents, tokens;  // [R]
  std::span<float> log_probability;               // out: [R, vocabulary], of the next token
  std::span<float> attention;                     // out: [R, sources]; each row adds up to 1
};
// The model, and the sizes of a step.
struct BeamModel {
  std::int64_t vocabulary = 0, sources = 0;
  std::function<void(const BeamStep&)> step;
};

// A translation that was found.
struct Hypothesis {
  std::vector<std::int32_t> tokens;  // without begin and end
  double log_probability = 0;        // of the tokens and, unless it was cut, the end
  double score = 0;                  // eq. 14
  bool cut = false;                  // true: it reached length_max without an end
};

// Score of a translation Y of X (Wu et al. 2016, eq. 14):
//   log P(Y|X) / lp(Y) + cp(X; Y), lp(Y) = ((5 + |Y|) / 6)^α, cp = β Σ_i log min(Σ_j p_ij, 1)
// length: tokens, the end included; coverage: [sources], Σ_j p_ij.
double BeamScore(const BeamOptions& options, double log_probability, std::int64_t length,
                 std::span<const float> coverage);

// Searches for the translation with the best score. Each step extends the hypotheses by the most
// probable tokens; one that ends keeps its place in the beam, so that later steps extend fewer.
// Equal candidates are taken in the order of rows and tokens. Returns the best one of those that
// ended, or if none did, of those that were cut. O(length_max · beam · vocabulary) and the steps.
// REQUIRES: beam and length_max are at least 1.
Hypothesis BeamSearch(const BeamOptions& options, const BeamModel& model);

}  // namespace troop
