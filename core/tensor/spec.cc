// Implements the checks of specifications, and action masks.
#include "core/tensor/spec.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/base/utf8.h"

namespace troop {
namespace {

// Largest magnitude below which f32 has all integers.
constexpr float kIntegerMax = 1 << 24;

// Checks the bounds of components that are integers. REQUIRES: finite bounds in order.
Status CheckIntegers(const EnvSpec& spec) {
  const ActionSpec& a = spec.action;
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < a.low.size(); ++i) {
    for (const float bound : {a.low[i], a.high[i]}) {
      if (bound == std::trunc(bound) && std::abs(bound) <= kIntegerMax) continue;
      return InvalidArgument("{}: action[{}] is bounded by {}; give an integer of at most {}",
                             spec.id, i, bound, kIntegerMax);
    }
    // At most 4096 components of 2^25 values: no overflow.
    sum += a.choices(i);
  }
  if (sum <= kActionCountMax) return Status::Ok();
  return InvalidArgument(
      "{}: the components of an action have {} values together; 1 to {} are "
      "supported",
      spec.id, sum, kActionCountMax);
}

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
  return a.integers ? CheckIntegers(spec) : Status::Ok();
}

// Checks one part by itself.
Status CheckPart(const EnvSpec& spec, const ObservationPart& part) {
  const auto same = [&](const ObservationPart& other) { return other.name == part.name; };
  if (part.name.empty() || part.name.size() > kPartNameBytesMax ||
      std::ranges::count_if(spec.parts, same) > 1) {
    return InvalidArgument(
        "{}: a part of the observation is named \"{}\"; give unique names of 1 to {} bytes",
        spec.id, PrintableLine(part.name, kPartNameBytesMax), kPartNameBytesMax);
  }
  if (part.shape.rank() > kObservationRankMax || part.shape.elements() < 1) {
    return InvalidArgument("{}: part \"{}\" has the shape {}; give at most {} dimensions >= 1",
                           spec.id, part.name, part.shape.ToString(), kObservationRankMax);
  }
  if (!std::isfinite(part.scale) || part.scale <= 0) {
    return InvalidArgument("{}: part \"{}\" has the scale {}; give a positive number", spec.id,
                           part.name, part.scale);
  }
  if (!part.action_mask) return Status::Ok();
  const bool fits = spec.action.discrete() && part.shape.elements() == spec.action.count;
  if (fits && std::ranges::count_if(spec.parts, &ObservationPart::action_mask) == 1)
    return Status::Ok();
  return InvalidArgument(
      "{}: the action mask \"{}\" has {} elements; give one mask, with one element per discrete "
      "action",
      spec.id, part.name, part.shape.elements());
}

// Checks that the parts make up the observation.
Status CheckParts(const EnvSpec& spec) {
  if (spec.parts.empty()) return Status::Ok();
  if (spec.parts.size() > kObservationPartsMax) {
    return InvalidArgument("{}: an observation of {} parts; up to {} are supported", spec.id,
                           spec.parts.size(), kObservationPartsMax);
  }
  std::int64_t sum = 0;
  for (const ObservationPart& part : spec.parts) {
    TROOP_RETURN_IF_ERROR(CheckPart(spec, part));
    // Compared at each part, so that the sum cannot overflow.
    sum += std::min(part.shape.elements(), kObservationBytesMax + 1);
    if (sum > kObservationBytesMax) break;
  }
  if (spec.observation.shape.rank() != 1 || spec.observation.shape.elements() != sum) {
    return InvalidArgument("{}: its observation is {}, but its parts have {} elements; give [{}]",
                           spec.id, spec.observation.ToString(), sum, sum);
  }
  if (spec.observation.dtype == DType::kI32 || spec.observation_scale != 1) {
    return InvalidArgument(
        "{}: an observation with parts is {} with scale {}; give u8 or f32, and the scale of each "
        "part",
        spec.id, spec.observation.ToString(), spec.observation_scale);
  }
  if (std::ranges::all_of(spec.parts, &ObservationPart::action_mask)) {
    return InvalidArgument("{}: its observation has no part but the action mask; add one", spec.id);
  }
  return Status::Ok();
}

// Element i of an observation, whose bytes may have any alignment.
template <class T>
T ElementAt(std::span<const std::byte> observation, std::int64_t i) {
  T value;
  std::memcpy(&value, observation.data() + std::size_t(i) * sizeof(T), sizeof(T));
  return value;
}
// Only these two types may have parts (CheckParts).
double MaskAt(const EnvSpec& spec, std::span<const std::byte> observation, std::int64_t i) {
  return spec.observation.dtype == DType::kU8 ? double(ElementAt<std::uint8_t>(observation, i))
                                              : double(ElementAt<float>(observation, i));
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
  TROOP_RETURN_IF_ERROR(CheckAction(spec));
  return CheckParts(spec);
}

// Bounds are part of the text, because policies scale to them.
std::string DescribeActions(const ActionSpec& action) {
  if (action.discrete())
    return fmt::format("{} action{}", action.count, action.count == 1 ? "" : "s");
  return fmt::format("actions {} from [{}] to [{}]{}", action.tensor().ToString(),
                     fmt::join(action.low, ", "), fmt::join(action.high, ", "),
                     action.integers ? " in integers" : "");
}

// Negated comparisons, so that NaN is an error too.
Status CheckComponents(const ActionSpec& spec, std::span<const float> actions) {
  const std::size_t size = spec.low.size();
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const float value = actions[i], low = spec.low[i % size], high = spec.high[i % size];
    if (!(value >= low && value <= high))
      return InvalidArgument("action[{}] is {}, must be within [{}, {}]", i % size, value, low,
                             high);
    if (spec.integers && value != std::trunc(value))
      return InvalidArgument("action[{}] is {}, must be an integer", i % size, value);
  }
  return Status::Ok();
}

// Parts are listed in their order in memory.
std::string DescribeObservation(const EnvSpec& spec) {
  std::string text = spec.observation.ToString();
  const char* separator = ": ";
  for (const ObservationPart& part : spec.parts) {
    text += fmt::format("{}{} {}", separator, part.name, part.shape.ToString());
    if (part.action_mask) text += " (action mask)";
    if (part.scale != 1) text += fmt::format(" scaled by {}", part.scale);
    separator = ", ";
  }
  return text;
}

// Parts are few, so the offset is computed at each call.
std::optional<std::int64_t> ActionMaskOffset(const EnvSpec& spec) {
  std::int64_t first = 0;
  for (const ObservationPart& part : spec.parts) {
    if (part.action_mask) return first;
    first += part.shape.elements();
  }
  return std::nullopt;
}

// An element other than 0 allows its action, as in the network (nn/layers/action_mask_layer.cc).
std::vector<std::int32_t> AllowedActions(const EnvSpec& spec,
                                         std::span<const std::byte> observation) {
  std::vector<std::int32_t> allowed;
  const std::optional<std::int64_t> first = ActionMaskOffset(spec);
  for (std::int64_t a = 0; a < spec.action.count; ++a) {
    if (!first || MaskAt(spec, observation, *first + a) != 0) allowed.push_back(std::int32_t(a));
  }
  // An empty mask hides nothing.
  if (!allowed.empty()) return allowed;
  for (std::int64_t a = 0; a < spec.action.count; ++a) allowed.push_back(std::int32_t(a));
  return allowed;
}

// The rest of the mask matters only if the action's own element is 0.
bool AllowsAction(const EnvSpec& spec, std::span<const std::byte> observation,
                  std::int32_t action) {
  const std::optional<std::int64_t> first = ActionMaskOffset(spec);
  if (!first || MaskAt(spec, observation, *first + action) != 0) return true;
  for (std::int64_t a = 0; a < spec.action.count; ++a) {
    if (MaskAt(spec, observation, *first + a) != 0) return false;
  }
  return true;
}

// The message names the first wrong element.
Status CheckActionMask(const EnvSpec& spec, std::span<const std::byte> observation) {
  const std::optional<std::int64_t> first = ActionMaskOffset(spec);
  if (!first) return Status::Ok();
  bool any = false;
  for (std::int64_t a = 0; a < spec.action.count; ++a) {
    const double element = MaskAt(spec, observation, *first + a);
    any |= element == 1;
    if (element == 0 || element == 1) continue;
    return InvalidArgument("element {} of the action mask is {}; give 0 or 1", a, element);
  }
  if (any) return Status::Ok();
  return InvalidArgument("the action mask allows none of the {} actions", spec.action.count);
}

}  // namespace troop
