#pragma once

#include <string>

#include "core/config.h"
#include "core/spec.h"
#include "core/status.h"
#include "net/control.h"

namespace troop {

// What a run learns: its environment, or reviews (ReviewSpec). Errors: as FindEnvSpec.
Result<EnvSpec> ProblemOf(const Config& config);
// For people: "CartPole-v1", or where the reviews are.
std::string ProblemName(const Config& config);
// What the run's steps are: "agent steps" or "reviews".
const char* StepsName(const Config& config);
// What its evaluations tell: a return, or how many of what it is asked were told right.
struct ScoreWords {
  const char* score;  // "mean return", "% of the test reviews told right"
  const char* units;  // "episodes", "test reviews"
};
ScoreWords ScoreWordsOf(const Config& config);
// How far a score can be relied on, to be put after it: of returns " ± 0.78", the standard
// deviation over the episodes; of a share (`supervised`) " (95 % interval 76.72 to 90.69)", as the
// standard error of 0 or all of n is 0. Of the report only return_std, return_min and return_max
// are used.
std::string SpreadText(bool supervised, const EvaluationReport& report);
// A return or a score for people: "9.30"; "1.235e+12" from ten million on.
std::string ScoreText(double score);
// The returns of an evaluation: "9.30 ± 0.78 over 100 episodes (min 8.00, max 11.00)", or of one
// "9.30 over 1 episode".
std::string ReturnText(const EvaluationReport& report);

}  // namespace troop
