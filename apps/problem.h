#pragma once

#include <string>

#include "core/config.h"
#include "core/spec.h"
#include "core/status.h"

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

}  // namespace troop
