#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/tensor/tensor.h"

namespace troop {

// The actions of an environment. Discrete: one i32 in [0, count). Continuous: f32 [size], each
// within [low[i], high[i]].
struct ActionSpec {
  enum class Kind : std::uint8_t { kDiscrete, kContinuous } kind = Kind::kDiscrete;
  std::int64_t count = 0;        // kDiscrete
  std::vector<float> low, high;  // kContinuous: [size] each
  bool discrete() const { return kind == Kind::kDiscrete; }
  TensorSpec tensor() const {
    return discrete() ? TensorSpec{DType::kI32, {}}
                      : TensorSpec{DType::kF32, {std::int64_t(low.size())}};
  }
  bool operator==(const ActionSpec&) const = default;
};

// The interface of an environment.
struct EnvSpec {
  std::string id;
  TensorSpec observation;
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

// Validates a specification from outside. Errors: kInvalidArgument: limits exceeded or empty; a
// scale that is not positive; bounds that are not finite or not in order; a negative step limit.
Status CheckEnvSpec(const EnvSpec& spec);

}  // namespace troop
