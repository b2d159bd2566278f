// Implements the advice on defaults that belong to another algorithm.
#include "fleet/config/algorithm_advice.h"

namespace troop {
namespace {

// Horgan et al. 2018, appendix D; Fujimoto et al. 2018, algorithm 1; Haarnoja et al. 2018
// (arXiv:1812.05905), table 1.
std::string TargetAdvice(const LearnerConfig& learner) {
  const LearnerConfig defaults;
  if (learner.target_update_every_updates != defaults.target_update_every_updates ||
      learner.target_tau != defaults.target_tau)
    return "";
  const bool td3 = learner.algorithm == AlgorithmKind::kTd3;
  const bool sac = learner.algorithm == AlgorithmKind::kSac;
  // TD3 moves the targets with the policy.
  const std::int64_t every = td3 ? learner.policy_delay : sac ? 1 : 100;
  return fmt::format(
      "learner.target_update_every_updates is {} and learner.target_tau is {}, the defaults for "
      "dqn; set {} and {} for {}, as in its paper",
      learner.target_update_every_updates, learner.target_tau, every, td3 || sac ? 0.005 : 1,
      EnumName(learner.algorithm));
}

// Espeholt et al. 2018, sec. 4.1 (no λ); Schulman et al. 2017, table 3.
std::string LambdaAdvice(const LearnerConfig& learner) {
  if (learner.lambda != LearnerConfig().lambda) return "";
  return fmt::format("learner.lambda is {}, the default for pqn; set {} for {}, as in its paper",
                     learner.lambda, learner.algorithm == AlgorithmKind::kPpo ? "0.95" : "1",
                     EnumName(learner.algorithm));
}

}  // namespace

std::string AlgorithmAdvice(const Config& config) {
  const LearnerConfig& learner = config.learner;
  if (HasPolicyNetwork(learner.algorithm)) return TargetAdvice(learner);
  return IsActorCritic(learner.algorithm) ? LambdaAdvice(learner) : "";
}

}  // namespace troop
