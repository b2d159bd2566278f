#pragma once

#include <memory>

#include "core/base/status.h"
#include "core/tensor/spec.h"
#include "nn/models/model_setup.h"
#include "nn/module.h"

namespace troop {

// Columns of an actor-critic's output: those of its policy, then the value of the observation. The
// policy's: a logit for each discrete action, or for each value of each component of an action of
// integers; for A continuous action dimensions A means, then the logarithms of A standard
// deviations (kernels/loss/policy_distribution.h).
std::int64_t ActorCriticColumns(const ActionSpec& action);

// Creates the network of an actor-critic, [B, ...NetworkInput] → [B, ActorCriticColumns] f32.
// Policy and value share network.layers, or the value has a separate network with
// network.critic_layers ("value.*" next to "policy.*"). The logarithms of the standard deviations
// are parameters that do not depend on the observation ("log_std", initially
// network.initial_log_std). Errors: kInvalidArgument.
Result<std::unique_ptr<Module>> MakeActorCriticNetwork(const ModelSetup& setup, const EnvSpec& env);

}  // namespace troop
