#include "apps/problem.h"

#include <fmt/format.h>

#include "envs/environment.h"
#include "nn/text_model.h"
#include "text/reviews.h"

namespace troop {

Result<EnvSpec> ProblemOf(const Config& config) {
  if (IsSupervised(config)) return ReviewSpec(config);
  Result<EnvSpec> spec = FindEnvSpec(config.env.id, EnvOptionsFor(config));
  if (spec.ok() || spec.status().message().starts_with("env.")) return spec;
  return spec.status().WithContext("env.id");
}

std::string ProblemName(const Config& config) {
  return IsSupervised(config) ? config.data.reviews : config.env.id;
}

const char* StepsName(const Config& config) {
  return IsSupervised(config) ? "reviews" : "agent steps";
}

ScoreWords ScoreWordsOf(const Config& config) {
  if (!IsSupervised(config)) return {"mean return", "episodes"};
  const bool tests = HasTestReviews(config.data.reviews);
  if (config.learner.algorithm == "masked_lm")
    return {"% of masked words told right", tests ? "test reviews" : "held-out reviews"};
  return {"% told right", tests ? "test reviews" : "held-out reviews"};
}

std::string SpreadText(bool supervised, const EvaluationReport& report) {
  if (!supervised) return fmt::format(" ± {:.2f}", report.return_std);
  return fmt::format(" (95 % interval {:.2f} to {:.2f})", report.return_min, report.return_max);
}

}  // namespace troop
