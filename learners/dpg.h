#pragma once

#include <memory>

#include "learners/algorithm.h"
#include "nn/policy_critic.h"

namespace troop {

// Ape-X DPG for continuous actions (Horgan et al. 2018, appendix D; the critic of D4PG as an
// option: Barth-Maron et al. 2018). The losses are those of learners/td_loss.h.
//
// One update, all of it at the same weights:
//   critic: n-step target with the target policy and the target critic,
//     G = Σ γ^k r_k + γ^n Q'(s_n, μ'(s_n)); importance-weighted mean of the TD error's loss, or of
//     that between distributions; priorities |TD error|, of a distribution's means.
//   policy: the mean of Q(s, μ(s)) upwards, with dQ/da clipped to ±learner.action_gradient_clip,
//     element by element; not importance-weighted, as in D4PG.
// Then one clip of the whole gradient's norm, one optimizer step (the policy at
// optimizer.policy_learning_rate, if that is set), and the target as Dqn does it.
//
// Update: besides what Algorithm says, kInvalidArgument when the batch's shapes, dtypes or lengths
// don't fit the environment; nothing was changed then. Same calls, same bytes, on the same machine.
// Errors: the network can't be made, or learner.* has values that it doesn't know.
Result<std::unique_ptr<Algorithm>> MakeDpg(const Config& config, const EnvSpec& env,
                                           std::unique_ptr<PolicyCritic> network);

}  // namespace troop
