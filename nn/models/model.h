#pragma once

#include <memory>

#include "core/base/status.h"
#include "core/tensor/spec.h"
#include "nn/models/model_setup.h"
#include "nn/module.h"

namespace troop {

// Input of a network per decision: env.frame_stack observations, [S, ...observation], oldest first;
// without that axis if S is 1.
TensorSpec NetworkInput(const ModelSetup& setup, const EnvSpec& env);

// Checks that learner.algorithm supports this kind of actions. Errors: kInvalidArgument, naming an
// algorithm that does.
Status CheckActions(const ModelSetup& setup, const EnvSpec& env);

// Creates the network of a run. Text models: nn/models/text_model.h. Actor-critics:
// nn/models/actor_critic_network.h. Other continuous actions: nn/models/policy_critic.h. Discrete
// actions: [B, ...NetworkInput] in the environment's dtype →
// [B, actions · K] f32: q, for each action the K outputs of its value form
// (nn/models/value_head.h); K = 1 for a scalar form. Images, [h, w] or [h, w, channels], are
// stacked along the channels if conv2d is the first layer. Then the layers of setup.network.layers
// in order, and the head: linear to the actions, or dueling (Wang et al. 2016, eq. 9: q = v + a -
// mean(a), each stream with `dueling_units` hidden units). Networks whose whole forward is small
// run it in one fused call. With
// network.noisy the head's linear layers are noisy (nn/layers/layers.h), and without dueling those
// of network.layers too. Errors: kInvalidArgument.
Result<std::unique_ptr<Module>> MakeNetwork(const ModelSetup& setup, const EnvSpec& env);

// P: elements of the flat buffer, padding included.
std::int64_t ParameterCount(const Module& module);
// Elements without padding, as papers count parameters.
std::int64_t ElementCount(const Module& module);
// Initializes value [P], keyed by (seed, Purpose::kParameters, parameter index). A slice gets the
// values that it has in the whole tensor. first: index of the module's first parameter, if it is
// part of a model with other parameters before it.
void InitParameters(const Module& module, std::uint64_t seed, std::span<float> value,
                    std::uint64_t first = 0);

}  // namespace troop
