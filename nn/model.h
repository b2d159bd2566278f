#pragma once

#include <memory>

#include "core/config.h"
#include "core/spec.h"
#include "nn/module.h"

namespace troop {

// What networks see of an environment at a time: env.frame_stack observations, [S, ...observation],
// oldest first; one alone has no axis for it.
TensorSpec NetworkInput(const Config& config, const EnvSpec& env);

// Whether learner.algorithm takes actions of this kind. Errors: kInvalidArgument, with one that
// does.
Status CheckActions(const Config& config, const EnvSpec& env);

// The network of a config. Of reviews: nn/text_model.h. Of continuous actions:
// nn/policy_critic.h. Of discrete ones:
// [B, ...NetworkInput] in the environment's dtype → [B, actions · K] f32: q, of each action one
// number after the other of its form (nn/value_form.h), K = 1 of a plain one.
// Pictures, [h, w] or [h, w, channels], that conv2d comes first for are stacked in their channels.
// Layers of config.network.layers in order; then the head: linear to the actions, or dueling
// (Wang et al. 2016, eq. 9: q = v + a - mean(a), each stream with `dueling_units` hidden units).
// Networks whose whole forward is small run it in one fused call. Errors: kInvalidArgument.
Result<std::unique_ptr<Module>> MakeNetwork(const Config& config, const EnvSpec& env);

std::int64_t ParameterCount(
    const Module& module);  // P: elements of the flat buffer, padding included
std::int64_t ElementCount(const Module& module);  // the same without padding, as papers count
// Initial values, keyed by (seed, Purpose::kParameters, parameter index): of a slice, those that it
// has in the whole. value: [P].
void InitParameters(const Module& module, std::uint64_t seed, std::span<float> value);

}  // namespace troop
