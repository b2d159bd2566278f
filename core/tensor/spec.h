#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/tensor/tensor.h"

namespace troop {

// The actions of an environment. Discrete: one i32 in [0, count). Continuous: f32 [size], each
// within [low[i], high[i]]. Several discrete components (Gymnasium's MultiDiscrete and MultiBinary)
// are like continuous ones, with integers alone.
struct ActionSpec {
  enum class Kind : std::uint8_t { kDiscrete, kContinuous } kind = Kind::kDiscrete;
  std::int64_t count = 0;        // kDiscrete
  std::vector<float> low, high;  // kContinuous: [size] each
  bool integers = false;         // kContinuous: every element is an integer
  bool discrete() const { return kind == Kind::kDiscrete; }
  TensorSpec tensor() const {
    return discrete() ? TensorSpec{DType::kI32, {}}
                      : TensorSpec{DType::kF32, {std::int64_t(low.size())}};
  }
  // Values of component i. REQUIRES: integers.
  std::int64_t choices(std::size_t i) const {
    return std::int64_t(high[i]) - std::int64_t(low[i]) + 1;
  }
  // The sum of all components' values. REQUIRES: integers.
  std::int64_t choices() const {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < low.size(); ++i) sum += choices(i);
    return sum;
  }
  bool operator==(const ActionSpec&) const = default;
};

// One entry of a structured observation (Gymnasium's Dict), row-major in consecutive elements.
struct ObservationPart {
  std::string name;
  Shape shape;
  float scale = 1;           // factor applied to network inputs: 1/255 for images
  bool action_mask = false;  // 1 for each discrete action that is allowed, 0 for the others
  bool operator==(const ObservationPart&) const = default;
};

// The interface of an environment.
struct EnvSpec {
  std::string id;
  TensorSpec observation;
  // Entries of the observation, which is then [sum of their elements]; empty: a single tensor.
  std::vector<ObservationPart> parts;
  float observation_scale = 1;  // factor applied to network inputs: 1/255 for gray frames
  ActionSpec action;
  std::int64_t max_episode_steps = 0;  // 0: no limit; longer episodes are truncated
  // Identifies custom code of the environment, for display and comparison: the file of a plug-in,
  // or the user's Python files. Empty if there is none, or unknown.
  std::string code;
  bool operator==(const EnvSpec&) const = default;
};

// Limits of environments, independent of where they run. A batch of frame stacks adds two
// dimensions to an observation.
inline constexpr int kObservationRankMax = Shape::kMaxRank - 2;
inline constexpr std::int64_t kObservationBytesMax = std::int64_t{64} << 20;
inline constexpr std::int64_t kActionCountMax = 1 << 20;  // discrete
inline constexpr std::int64_t kActionSizeMax = 4096;      // continuous: elements of one action
inline constexpr std::size_t kObservationPartsMax = 64;
inline constexpr std::size_t kPartNameBytesMax = 64;

// "6 actions", "actions f32[2] from [-1, -1] to [1, 1]", or the latter "in integers".
std::string DescribeActions(const ActionSpec& action);
// Checks the components of actions [.., size], not discrete ones: within the bounds, and integers
// where all are. Errors: kInvalidArgument, naming the first wrong one.
Status CheckComponents(const ActionSpec& spec, std::span<const float> actions);

// Validates a specification from outside. Errors: kInvalidArgument: limits exceeded or empty; a
// scale that is not positive; bounds that are not finite or not in order; a negative step limit;
// parts that do not add up to the observation, or a mask that does not match the actions.
Status CheckEnvSpec(const EnvSpec& spec);

// The observation's type, and its parts: "f32[49]: board [6, 7], action_mask [7] (action mask)".
std::string DescribeObservation(const EnvSpec& spec);

// First element of the action mask within an observation; nullopt: all actions are always allowed.
// REQUIRES: CheckEnvSpec.
std::optional<std::int64_t> ActionMaskOffset(const EnvSpec& spec);
// The actions that an observation allows, in ascending order. If the mask allows none, which is
// possible after the end of an episode, all of them. REQUIRES: discrete actions; observation.size()
// == spec.observation.bytes().
std::vector<std::int32_t> AllowedActions(const EnvSpec& spec,
                                         std::span<const std::byte> observation);
// True if this is one of them. REQUIRES: an action in [0, count); observation: a frame of the
// environment, whose size is that of the parts together.
bool AllowsAction(const EnvSpec& spec, std::span<const std::byte> observation, std::int32_t action);
// Checks the mask of an observation before a step: each element is 0 or 1, and one is 1. Errors:
// kInvalidArgument.
Status CheckActionMask(const EnvSpec& spec, std::span<const std::byte> observation);

}  // namespace troop
