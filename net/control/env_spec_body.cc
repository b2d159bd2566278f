// Implements the conversion between EnvSpec and its message body.
#include "net/control/env_spec_body.h"

#include <utility>

namespace troop {

// 0 actions stand for a continuous action, whose size is that of the bounds.
EnvSpecBody ToBody(const EnvSpec& spec) {
  std::vector<ObservationPartBody> parts;
  for (const ObservationPart& part : spec.parts) {
    const TensorSpec tensor{spec.observation.dtype, part.shape};
    parts.push_back({part.name, tensor.ToString(), part.scale, part.action_mask});
  }
  return {.id = spec.id,
          .observation = spec.observation.ToString(),
          .observation_scale = spec.observation_scale,
          .actions = spec.action.discrete() ? spec.action.count : 0,
          .low = spec.action.low,
          .high = spec.action.high,
          .integers = spec.action.integers,
          .max_episode_steps = spec.max_episode_steps,
          .code = spec.code,
          .parts = std::move(parts)};
}

// The body comes from the network: CheckEnvSpec validates the whole result.
Result<EnvSpec> FromBody(const EnvSpecBody& body) {
  EnvSpec spec{.id = body.id,
               .observation_scale = body.observation_scale,
               .max_episode_steps = body.max_episode_steps,
               .code = body.code};
  TROOP_ASSIGN_OR_RETURN(spec.observation, ParseTensorSpec(body.observation));
  // Shapes arrive as text, whose parser bounds the number of elements.
  for (const ObservationPartBody& part : body.parts) {
    TROOP_ASSIGN_OR_RETURN(const TensorSpec tensor, ParseTensorSpec(part.shape));
    spec.parts.push_back({part.name, tensor.shape, part.scale, part.action_mask});
  }
  const bool discrete = body.actions != 0;
  spec.action = {.kind = discrete ? ActionSpec::Kind::kDiscrete : ActionSpec::Kind::kContinuous,
                 .count = body.actions,
                 .low = body.low,
                 .high = body.high,
                 .integers = body.integers};
  TROOP_RETURN_IF_ERROR(CheckEnvSpec(spec));
  return spec;
}

}  // namespace troop
