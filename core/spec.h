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
  bool operator==(const EnvSpec&) const = default;
};

// What the world may claim of an environment. Errors: kInvalidArgument: no observation or one
// beyond 64 MiB, a scale that is no positive number, no action or more than 65536 of them, more
// than 4096 numbers an action, bounds that are not finite or not in order, a negative limit.
Status CheckEnvSpec(const EnvSpec& spec);

}  // namespace troop
