#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/status.h"
#include "core/tensor.h"

namespace troop {

// What an agent may do. Discrete: one i32 in [0, count). Continuous: f32 [size], each within
// [low[i], high[i]].
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

struct EnvSpec {
  std::string id;
  TensorSpec observation;
  float observation_scale = 1;  // networks multiply by it first: 1/255 for grey frames
  ActionSpec action;
  std::int64_t max_episode_steps = 0;  // 0: none; longer episodes are truncated
  // What custom code it is made of, for people and for comparison: a plug-in's file, or the Python
  // files that the user wrote. Empty: none, or unknown.
  std::string code;
  bool operator==(const EnvSpec&) const = default;
};

// What an environment may look like, whoever plays it and wherever. A batch of stacks adds two
// dimensions to an observation's.
inline constexpr int kObservationRankMax = Shape::kMaxRank - 2;
inline constexpr std::int64_t kObservationBytesMax = std::int64_t{64} << 20;
inline constexpr std::int64_t kActionCountMax = 1 << 20;  // discrete
inline constexpr std::int64_t kActionSizeMax = 4096;      // continuous: numbers of one action

// For what the world claims. Errors: kInvalidArgument: beyond these limits, or nothing at all; a
// scale that is no positive number, bounds that are not finite or not in order, a negative limit of
// steps.
Status CheckEnvSpec(const EnvSpec& spec);

}  // namespace troop
