#pragma once

#include <string>

#include "core/base/status.h"
#include "core/tensor/spec.h"
#include "fleet/config/config.h"
#include "net/control/evaluation_report.h"

namespace troop {

// Spec of the run's environment, or of its reviews (ReviewSpec). Errors: those of FindEnvSpec.
Result<EnvSpec> TaskSpec(const Config& config);
// Checks that the environment of evaluation episodes ([evaluator.env]) can be created and has the
// observations and actions of `training`, the spec of [env]. Without differences nothing is
// created. Errors: kInvalidArgument, naming both; those of FindEnvSpec.
Status CheckEvaluationSpec(const Config& config, const EnvSpec& training);
// The path of a supervised run's examples: data.images or data.reviews.
const std::string& SourceOfExamples(const Config& config);
// Name of the loss of a supervised run's evaluations, with `space` between its words: "cross
// entropy".
std::string LossName(const Config& config, std::string_view space);
// Human-readable: "CartPole-v1", or the path of the examples.
std::string TaskName(const Config& config);
// Unit of the run's steps: "agent steps" or "examples".
const char* StepsName(const Config& config);
// Labels of an evaluation's score: a mean return, or an accuracy.
struct ScoreLabels {
  const char* score;  // "mean return", "% accuracy"
  const char* units;  // "episodes", "test examples"
};
// The labels for this config's algorithm and data.
ScoreLabels GetScoreLabels(const Config& config);
// Uncertainty of a score, as a suffix: " ± 0.78" is the standard deviation of returns over the
// episodes; " (95 % interval 76.72 to 90.69)" is that of an accuracy (`supervised`), whose standard
// error would be 0 for none or all of n correct. Reads only return_std, return_min and return_max.
std::string SpreadText(bool supervised, const EvaluationReport& report);
// A return or score, human-readable: "9.30"; "1.235e+12" from ten million on.
std::string ScoreText(double score);
// Summary of an evaluation: "9.30 ± 0.78 over 100 episodes (min 8.00, max 11.00)", or
// "9.30 over 1 episode".
std::string ReturnText(const EvaluationReport& report);

}  // namespace troop
