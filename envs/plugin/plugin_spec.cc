// Validates the spec of a plug-in before anything is allocated for it.

#include "envs/plugin/plugin_spec.h"

#include <fmt/format.h>

#include <cmath>

#include "envs/plugin/plugin_environment.h"

namespace troop {
namespace {

// Element type of an observation by its C constant.
Result<DType> TypeOf(std::int32_t said) {
  switch (said) {
    case TROOP_ENV_U8:
      return DType::kU8;
    case TROOP_ENV_I32:
      return DType::kI32;
    case TROOP_ENV_F32:
      return DType::kF32;
    default:
      return InvalidArgument(
          "observation_type is {}; give TROOP_ENV_U8, TROOP_ENV_I32 or TROOP_ENV_F32", said);
  }
}

// Checks rank and dimensions; rank 0 is a single number.
Result<TensorSpec> ObservationOf(const TroopEnvSpec& said) {
  TROOP_ASSIGN_OR_RETURN(const DType dtype, TypeOf(said.observation_type));
  if (said.observation_rank < 0 || said.observation_rank > kObservationRankMax) {
    return InvalidArgument("observation_rank is {}; give 0 to {}", said.observation_rank,
                           kObservationRankMax);
  }
  const std::span shape(said.observation_shape, std::size_t(said.observation_rank));
  // Divide instead of multiplying: the product of the dimensions could overflow.
  std::int64_t room = kObservationBytesMax / std::int64_t(DTypeSize(dtype));
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] < 1) {
      return InvalidArgument("observation_shape[{}] is {}; give at least 1", i, shape[i]);
    }
    room /= shape[i];
    if (room < 1) {
      return InvalidArgument(
          "an observation of [{}] elements has more than {} MiB; make it smaller",
          fmt::join(shape, ", "), kObservationBytesMax >> 20);
    }
  }
  return TensorSpec{dtype, Shape(shape)};
}

// Copies the bounds, whose memory belongs to the library.
Result<ActionSpec> ContinuousAction(const TroopEnvSpec& said) {
  if (said.action_size < 1 || said.action_size > kActionSizeMax) {
    return InvalidArgument("action_size is {}; give 1 to {}", said.action_size, kActionSizeMax);
  }
  if (said.action_low == nullptr || said.action_high == nullptr) {
    return InvalidArgument("action_low or action_high is NULL; give {} bounds each",
                           said.action_size);
  }
  const auto size = std::size_t(said.action_size);
  for (std::size_t i = 0; i < size; ++i) {
    // Equal bounds are allowed: such an action is constant.
    const float low = said.action_low[i], high = said.action_high[i];
    if (!std::isfinite(low) || !std::isfinite(high) || low > high) {
      return InvalidArgument("action {} is within [{}, {}]; give finite bounds, low <= high", i,
                             low, high);
    }
  }
  return ActionSpec{.kind = ActionSpec::Kind::kContinuous,
                    .low = {said.action_low, said.action_low + size},
                    .high = {said.action_high, said.action_high + size}};
}

// Checks the action space; fields of the other kind are ignored.
Result<ActionSpec> ActionOf(const TroopEnvSpec& said) {
  if (said.action_kind == TROOP_ENV_CONTINUOUS) return ContinuousAction(said);
  if (said.action_kind != TROOP_ENV_DISCRETE) {
    return InvalidArgument("action_kind is {}; give TROOP_ENV_DISCRETE or TROOP_ENV_CONTINUOUS",
                           said.action_kind);
  }
  if (said.action_count < 1 || said.action_count > kActionCountMax) {
    return InvalidArgument("action_count is {}; give 1 to {}", said.action_count, kActionCountMax);
  }
  return ActionSpec{.kind = ActionSpec::Kind::kDiscrete, .count = said.action_count};
}

}  // namespace

// Converts the C struct. Errors: kInvalidArgument with the field and its permitted values.
Result<EnvSpec> SpecOfPlugin(std::string_view id, const TroopEnvSpec& said) {
  EnvSpec spec{.id = std::string(id)};
  TROOP_ASSIGN_OR_RETURN(spec.observation, ObservationOf(said));
  TROOP_ASSIGN_OR_RETURN(spec.action, ActionOf(said));
  // 0 means 1 for libraries that leave the field unset.
  spec.observation_scale = said.observation_scale == 0 ? 1 : float(said.observation_scale);
  if (!std::isnormal(spec.observation_scale) || spec.observation_scale < 0) {
    return InvalidArgument("observation_scale is {}; give a number above 0, such as 1/255",
                           said.observation_scale);
  }
  if (said.max_episode_steps < 0) {
    return InvalidArgument("max_episode_steps is {}; give at least 1, or 0 for no limit",
                           said.max_episode_steps);
  }
  spec.max_episode_steps = said.max_episode_steps;
  return spec;
}

}  // namespace troop
