#pragma once

#include <memory>

#include "learners/algorithm.h"
#include "nn/module.h"

namespace troop {

// Actor-critics on unrolls with the log-probabilities of the actors' policies (the state of an
// item, f32[S]):
//   vtrace: IMPALA (Espeholt et al. 2018). Targets and advantages are corrected by V-trace with
//     learner.rho_bar and learner.c_bar.
//   ppo: asynchronous proximal policy optimization (Schulman et al. 2017; APPO in RLlib): the
//     clipped surrogate with learner.ratio_clip between the policy and that of the actors, and
//     GAE(λ), corrected by V-trace where they differ.
// Discrete actions have a softmax policy, continuous ones clipped Gaussians
// (kernels/loss/policy_distribution.h). Network: nn/models/actor_critic_network.h. Loss:
// kernels/loss/policy_gradient_loss.h. One update evaluates all frames
// of its B unrolls once, clips the gradient's norm and makes the optimizer step. Deterministic. CPU
// only. Errors of an update: as UnrollAlgorithm; kInvalidArgument: no log-probabilities.
//
// `network`: MakeNetwork of an agent. Errors: kInvalidArgument: another output shape.
Result<std::unique_ptr<Algorithm>> MakeActorCritic(const TrainingConfig& config, const EnvSpec& env,
                                                   std::unique_ptr<Module> network);

}  // namespace troop
