#pragma once

#include <memory>

#include "learners/algorithm.h"
#include "nn/module.h"

namespace troop {

// Double DQN with n-step returns, importance weights and a target network (van Hasselt et al. 2016;
// Horgan et al. 2018, appendix C), for scalar values or value distributions (learner.critic: C51,
// QR-DQN; nn/models/value_head.h). The losses are those of learners/rl/td_loss.h; dueling is a
// property of the network.
//
// One update: q of the first and of the last observations, loss, gradient, global-norm clip,
// optimizer step at learning_rate * (1 + (final_lr_fraction - 1) * progress). Every
// learner.target_update_every_updates updates: target += target_tau * (value - target), a copy at
// tau 1. Both networks start at InitParameters(config.seed).
//
// Update: in addition to the errors of Algorithm, kInvalidArgument if the batch's shapes, dtypes,
// actions or lengths do not fit the environment; nothing was changed then. After the first update
// of a batch size only the network itself allocates. The same calls give the same bytes on the same
// machine.
//
// `network`: [B, ...observation] → [B, actions · K] f32, K values per action value. Errors:
// kInvalidArgument: another output shape, or actions that are not discrete.
// learner: index of this learner, which selects its noise (network.noisy). An update draws the
// noise three times: for the first observations, for the target network, and for the choice of the
// actions by double Q-learning (Fortunato et al. 2018, sec. 3.1).
Result<std::unique_ptr<Algorithm>> MakeDqn(const TrainingConfig& config, const EnvSpec& env,
                                           std::unique_ptr<Module> network, int learner = 0);

// Checks what MakeDqn requires of a config and a network, without making anything. Errors: as
// MakeDqn.
Status CheckDqn(const TrainingConfig& config, const EnvSpec& env, const Module& network);

}  // namespace troop
