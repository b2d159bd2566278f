// Validates the spec of a plug-in before anything is allocated for it.

#include "envs/plugin/plugin_spec.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <span>
#include <string>

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

// Checks the dimensions of a shape, which the library wrote to the member `name`.
Status CheckDimensions(std::string_view name, std::span<const std::int64_t> shape, DType dtype) {
  // Divide instead of multiplying: the product of the dimensions could overflow.
  std::int64_t room = kObservationBytesMax / std::int64_t(DTypeSize(dtype));
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] < 1) return InvalidArgument("{}[{}] is {}; give at least 1", name, i, shape[i]);
    room /= shape[i];
    if (room < 1) {
      return InvalidArgument(
          "an observation of [{}] elements has more than {} MiB; make it smaller",
          fmt::join(shape, ", "), kObservationBytesMax >> 20);
    }
  }
  return Status::Ok();
}

// Checks rank and dimensions; rank 0 is a single number.
Result<TensorSpec> ObservationOf(const TroopEnvSpec& said) {
  TROOP_ASSIGN_OR_RETURN(const DType dtype, TypeOf(said.observation_type));
  if (said.observation_rank < 0 || said.observation_rank > kObservationRankMax) {
    return InvalidArgument("observation_rank is {}; give 0 to {}", said.observation_rank,
                           kObservationRankMax);
  }
  const std::span shape(said.observation_shape, std::size_t(said.observation_rank));
  TROOP_RETURN_IF_ERROR(CheckDimensions("observation_shape", shape, dtype));
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
  // Bounds as for continuous actions; CheckEnvSpec requires integers.
  if (said.action_kind == TROOP_ENV_MULTI_DISCRETE) {
    TROOP_ASSIGN_OR_RETURN(ActionSpec action, ContinuousAction(said));
    action.integers = true;
    return action;
  }
  if (said.action_kind != TROOP_ENV_DISCRETE) {
    return InvalidArgument(
        "action_kind is {}; give TROOP_ENV_DISCRETE, TROOP_ENV_MULTI_DISCRETE or "
        "TROOP_ENV_CONTINUOUS",
        said.action_kind);
  }
  if (said.action_count < 1 || said.action_count > kActionCountMax) {
    return InvalidArgument("action_count is {}; give 1 to {}", said.action_count, kActionCountMax);
  }
  return ActionSpec{.kind = ActionSpec::Kind::kDiscrete, .count = said.action_count};
}

// Copies the parts, whose memory belongs to the library. CheckEnvSpec compares them with the rest.
Status ReadParts(const TroopEnvSpec& said, EnvSpec* spec) {
  if (said.part_count == 0) return Status::Ok();
  if (said.part_count < 0 || said.part_count > std::int32_t(kObservationPartsMax) ||
      said.parts == nullptr) {
    return InvalidArgument("part_count is {}{}; give the number of parts, at most {}",
                           said.part_count, said.parts == nullptr ? " and parts NULL" : "",
                           kObservationPartsMax);
  }
  for (const TroopEnvPart& part : std::span(said.parts, std::size_t(said.part_count))) {
    const std::string name(
        part.name == nullptr
            ? std::string_view()
            : std::string_view(part.name, strnlen(part.name, kPartNameBytesMax + 1)));
    if (part.rank < 0 || part.rank > kObservationRankMax) {
      return InvalidArgument("parts[{}].rank is {}; give 0 to {}", spec->parts.size(), part.rank,
                             kObservationRankMax);
    }
    const std::span shape(part.shape, std::size_t(part.rank));
    TROOP_RETURN_IF_ERROR(CheckDimensions(fmt::format("parts[{}].shape", spec->parts.size()), shape,
                                          spec->observation.dtype));
    // 0 means 1 for libraries that leave the member unset.
    const float scale = part.scale == 0 ? 1 : float(part.scale);
    spec->parts.push_back({name, Shape(shape), scale, part.action_mask != 0});
  }
  return CheckEnvSpec(*spec);
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
  TROOP_RETURN_IF_ERROR(ReadParts(said, &spec));
  if (spec.action.integers) TROOP_RETURN_IF_ERROR(CheckEnvSpec(spec));
  return spec;
}

}  // namespace troop
