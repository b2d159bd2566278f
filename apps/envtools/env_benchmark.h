#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/base/time.h"
#include "envs/vector_env.h"

namespace troop {

// Speed of a vector of environments with random actions. A step is a step of one environment.
struct EnvSpeed {
  std::vector<double> steps_per_s;  // of each of the kEnvSpeedParts parts, ascending
  std::optional<double> inside;     // seconds per step in the environments' code; only for
                                    // environments in separate processes
  double a_step = 0;                // seconds per step over all parts
  double median() const { return steps_per_s[steps_per_s.size() / 2]; }
};
inline constexpr int kEnvSpeedParts = 5;
// Measures for about `how_long`, after a warm-up of a tenth of it. Blocks. Errors: those of
// MakeVectorEnv and of its status().
Result<EnvSpeed> MeasureEnvironment(const std::string& id, const EnvOptions& options, int size,
                                    Duration how_long);

}  // namespace troop
