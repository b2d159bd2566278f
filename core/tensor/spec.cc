// Implements CheckEnvSpec.
#include "core/tensor/spec.h"

#include <cmath>

namespace troop {
namespace {

// Checks the action space: counts, sizes and bounds.
Status CheckAction(const EnvSpec& spec) {
  const ActionSpec& a = spec.action;
  if (a.discrete()) {
    if (a.count >= 1 && a.count <= kActionCountMax) return Status::Ok();
    return InvalidArgument("{}: {} discrete actions; 1 to {} are supported", spec.id, a.count,
                           kActionCountMax);
  }
  if (a.low.empty() || std::int64_t(a.low.size()) > kActionSizeMax ||
      a.low.size() != a.high.size()) {
    return InvalidArgument(
        "{}: an action has {} lower and {} upper bounds; 1 to {} of each are supported", spec.id,
        a.low.size(), a.high.size(), kActionSizeMax);
  }
  for (std::size_t i = 0; i < a.low.size(); ++i) {
    // Equal bounds are valid: such an action has one value.
    if (std::isfinite(a.low[i]) && std::isfinite(a.high[i]) && a.low[i] <= a.high[i]) continue;
    return InvalidArgument(
        "{}: action[{}] is bounded by [{}, {}]; give finite values, the lower one first", spec.id,
        i, a.low[i], a.high[i]);
  }
  return Status::Ok();
}

}  // namespace

// Specs come from plug-ins and other processes, so every field is checked.
Status CheckEnvSpec(const EnvSpec& spec) {
  if (spec.observation.shape.rank() > kObservationRankMax) {
    return InvalidArgument("{}: an observation of {} has {} dimensions; up to {} are supported",
                           spec.id, spec.observation.ToString(), spec.observation.shape.rank(),
                           kObservationRankMax);
  }
  const auto bytes = std::int64_t(spec.observation.bytes());
  // One frame of a replay must have a bounded size.
  if (bytes == 0 || bytes > kObservationBytesMax) {
    return InvalidArgument("{}: an observation of {} takes {} bytes; 1 to {} are supported",
                           spec.id, spec.observation.ToString(), bytes, kObservationBytesMax);
  }
  if (!std::isfinite(spec.observation_scale) || spec.observation_scale <= 0) {
    return InvalidArgument("{}: observation_scale is {}; give a positive number", spec.id,
                           spec.observation_scale);
  }
  if (spec.max_episode_steps < 0) {
    return InvalidArgument("{}: max_episode_steps is {}; give an integer >= 1, or 0 for no limit",
                           spec.id, spec.max_episode_steps);
  }
  return CheckAction(spec);
}

}  // namespace troop
