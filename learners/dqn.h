#pragma once

#include <memory>

#include "learners/algorithm.h"
#include "nn/module.h"

namespace troop {

// Double DQN with n-step returns, importance weights and a target network (van Hasselt et al. 2016;
// Horgan et al. 2018, appendix C), of values or of their distributions (learner.critic: C51,
// QR-DQN; nn/value_form.h). The losses are those of learners/td_loss.h; dueling is the network's.
//
// One update: q of the first and of the last observations, loss, gradient, global-norm clip,
// optimizer step at learning_rate * (1 + (final_fraction - 1) * progress); and each
// learner.target_update_steps updates target += target_tau * (value - target), a copy at tau 1.
// The new weights start at InitParameters(config.seed), the target at the same.
//
// Update: besides what Algorithm says, kInvalidArgument when the batch's shapes, dtypes, actions or
// lengths don't fit the environment; nothing was changed then. After the first update of a batch
// size nothing is allocated but by the network itself. Same calls, same bytes, on the same machine.
//
// `network`: [B, ...observation] → [B, actions · K] f32, K numbers to a value. Errors:
// kInvalidArgument when it isn't that, or when actions are not discrete.
Result<std::unique_ptr<Algorithm>> MakeDqn(const Config& config, const EnvSpec& env,
                                           std::unique_ptr<Module> network);

// What MakeDqn asks of a config and a network, without making anything. Errors: as MakeDqn's.
Status CheckDqn(const Config& config, const EnvSpec& env, const Module& network);

}  // namespace troop
