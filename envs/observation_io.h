#pragma once

#include <cstdint>
#include <cstring>
#include <span>

#include "core/base/check.h"

// Access to actions and observations as plain bytes of any alignment.
namespace troop {

// Reads the action of a discrete ActionSpec. REQUIRES: 4 bytes with a value in [0, count).
inline std::int32_t ReadDiscrete(std::span<const std::byte> action, std::int32_t count) {
  std::int32_t value = 0;
  TROOP_CHECK(action.size() == sizeof(value), "a discrete action has 4 bytes, not {}",
              action.size());
  std::memcpy(&value, action.data(), sizeof(value));
  TROOP_CHECK(value >= 0 && value < count, "action {} is outside [0, {})", value, count);
  return value;
}

// Writes the values as f32. REQUIRES: observation.size() == 4 * values.size().
inline void WriteFloats(std::span<const double> values, std::span<std::byte> observation) {
  TROOP_CHECK(observation.size() == values.size() * sizeof(float),
              "an observation has {} bytes, not {}", values.size() * sizeof(float),
              observation.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float value = float(values[i]);
    std::memcpy(observation.data() + i * sizeof(float), &value, sizeof(float));
  }
}

}  // namespace troop
