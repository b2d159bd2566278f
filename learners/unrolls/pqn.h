#pragma once

#include <memory>

#include "learners/algorithm.h"
#include "nn/module.h"

namespace troop {

// Parallelized Q-network (PQN; Gallici et al. 2024, "Simplifying Deep Temporal Difference
// Learning"): Q-learning from the newest unrolls of many environments, with λ-returns instead of a
// replay of old experience and a target network. Both roles of the target network, bootstrap and
// choice of the action, have the online weights, so learning is stable only with layer
// normalization ({type = "layer_norm"} in network.layers).
//
// A batch holds B unrolls of up to S = actor.unroll_length steps (sequences, SampleBatch). One
// update evaluates all frames of the batch once: the λ-returns are those of the current weights,
// not of the weights that acted. Loss, gradient and priorities: kernels/loss/q_lambda_loss.h. Then
// it clips the gradient's norm and makes the optimizer step, as in DQN. Deterministic. CPU only.
//
// `network`: MakeNetwork of an agent. Errors: kInvalidArgument: as CheckDqn.
Result<std::unique_ptr<Algorithm>> MakePqn(const TrainingConfig& config, const EnvSpec& env,
                                           std::unique_ptr<Module> network);

}  // namespace troop
