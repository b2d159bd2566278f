#pragma once

#include <memory>

#include "learners/algorithm.h"
#include "nn/models/policy_critic.h"

namespace troop {

// Ape-X DPG for continuous actions (Horgan et al. 2018, appendix D), optionally with the critic of
// D4PG (Barth-Maron et al. 2018); and TD3 (Fujimoto et al. 2018) on the same fleet. The losses are
// those of learners/rl/td_loss.h. Soft Actor-Critic has the same form.
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
// TD3 differs in three points (algorithm 1 of the paper):
//   twin critics: both learn from the target of the smaller of their values, min_i Q'_i; the loss
//     is the sum of both losses, a priority the mean of both. The policy ascends Q_1.
//   target policy smoothing: a' = μ'(s_n) + ε, ε ~ clip(N(0, σ²), ±c) with σ =
//     learner.target_policy_noise and c = learner.target_noise_clip in halves of the action range;
//     a' is clipped to the action bounds.
//   delayed policy updates: the policy changes only at each learner.policy_delay-th update.
// With learner.target_update_every_updates = learner.policy_delay the targets move then too, as in
// the paper.
//
// SAC (Haarnoja et al. 2018, arXiv:1812.05905, algorithm 1) also has twin critics, and a stochastic
// policy (learners/rl/soft_policy.h) with a temperature α:
//   critics: the target is min_i Q'_i(s_n, a') - α log π(a'|s_n), a' ~ π(s_n) of the online policy.
//   policy: descent on the importance-weighted mean of α log π(a|s) - min_i Q_i(s, a), a ~ π(s).
//   temperature: descent on the importance-weighted mean of -log α (log π(a|s) + H), with H =
//     learner.target_entropy, at optimizer.learning_rate. The clip leaves this gradient as it is,
//     and the norm does not include it.
//
// Update: in addition to the errors of Algorithm, kInvalidArgument if the batch's shapes, dtypes or
// lengths do not fit the environment; nothing was changed then. The same calls give the same bytes
// on the same machine. learner: its index, for its own noise. Errors: the network cannot be made,
// or learner.* has unknown values.
Result<std::unique_ptr<Algorithm>> MakeDpg(const TrainingConfig& config, const EnvSpec& env,
                                           std::unique_ptr<PolicyCritic> network, int learner = 0);

}  // namespace troop
