// Implements the advice on the target networks of actor-critic algorithms.
#include "fleet/config/target_advice.h"

namespace troop {

// Horgan et al. 2018, appendix D; Fujimoto et al. 2018, algorithm 1; Haarnoja et al. 2018
// (arXiv:1812.05905), table 1.
std::string TargetAdvice(const Config& config) {
  const LearnerConfig& learner = config.learner;
  const LearnerConfig defaults;
  if (!HasPolicyNetwork(learner.algorithm) ||
      learner.target_update_every_updates != defaults.target_update_every_updates ||
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

}  // namespace troop
