#pragma once

#include <memory>

#include "learners/algorithm.h"
#include "nn/module.h"

namespace troop {

// Recurrent replay distributed DQN (R2D2; Kapturowski et al. 2019): n-step double Q-learning with a
// target network over sequences of a prioritized replay. A recurrent network begins each sequence
// with the state that its actor stored (learner.stored_state), after a burn-in without a gradient
// (UnrollAlgorithm); the target network has its own burn-in. Values are rescaled by h
// (learner.value_rescaling), and the priority of a sequence mixes its largest and its mean TD error
// (learner.priority_max_share).
//
// A batch holds B unrolls of up to actor.unroll_length steps, preceded by up to actor.burn_in ones.
// Loss, gradient and priorities: kernels/loss/sequence_q_loss.h. Clip, optimizer step and target
// network: as DQN. Deterministic. CPU only.
//
// `network`: MakeNetwork of an agent. Errors: kInvalidArgument: as CheckDqn.
Result<std::unique_ptr<Algorithm>> MakeR2d2(const TrainingConfig& config, const EnvSpec& env,
                                            std::unique_ptr<Module> network);

}  // namespace troop
