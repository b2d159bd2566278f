#pragma once

#include <memory>

#include "learners/algorithm.h"
#include "nn/models/policy_critic.h"

namespace troop {

// Ape-X DPG for continuous actions (Horgan et al. 2018, appendix D), optionally with the critic of
// D4PG (Barth-Maron et al. 2018). The losses are those of learners/rl/td_loss.h.
//
// One update, computed entirely at the same weights:
//   critic: n-step target with the target policy and the target critic,
//     G = Σ γ^k r_k + γ^n Q'(s_n, μ'(s_n)); importance-weighted mean of the TD error's loss, or of
//     the loss between distributions; priorities |TD error| (of the means of distributions).
//   policy: gradient ascent on the mean of Q(s, μ(s)), with dQ/da clipped element-wise to
//     ±learner.action_gradient_clip; not importance-weighted, as in D4PG.
// Then one clip of the whole gradient's norm, one optimizer step (the policy at
// optimizer.policy_learning_rate, if that is set), and the target update as in DQN.
//
// Update: in addition to the errors of Algorithm, kInvalidArgument if the batch's shapes, dtypes or
// lengths do not fit the environment; nothing was changed then. The same calls give the same bytes
// on the same machine. Errors: the network cannot be made, or learner.* has unknown values.
Result<std::unique_ptr<Algorithm>> MakeDpg(const TrainingConfig& config, const EnvSpec& env,
                                           std::unique_ptr<PolicyCritic> network);

}  // namespace troop
