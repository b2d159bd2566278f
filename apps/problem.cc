#include "apps/problem.h"

#include "envs/environment.h"
#include "nn/text_model.h"

namespace troop {

Result<EnvSpec> ProblemOf(const Config& config) {
  if (IsSupervised(config)) return ReviewSpec(config);
  return FindEnvSpec(config.env.id, EnvOptionsFor(config));
}

std::string ProblemName(const Config& config) {
  return IsSupervised(config) ? config.data.reviews : config.env.id;
}

const char* StepsName(const Config& config) {
  return IsSupervised(config) ? "reviews" : "agent steps";
}

}  // namespace troop
