#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/base/time.h"
#include "envs/vector_env.h"

namespace troop {

// Speed of a vector environment with random actions. Steps are counted per environment: one step of
// a vector of N counts as N steps.
struct EnvSpeed {
  std::vector<double> steps_per_s;  // one per part of the measurement (kEnvSpeedParts), ascending
  std::optional<double> inside;     // seconds of process time per step in the environments' own
                                    // code; only for environments in separate processes
  double a_step = 0;                // wall-clock seconds per step, over all parts
  double median() const { return steps_per_s[steps_per_s.size() / 2]; }
};
inline constexpr int kEnvSpeedParts = 5;
// Measures for about `how_long`, after a warm-up of a tenth of that time. Blocks. Errors: those of
// MakeVectorEnv and of VectorEnv::status().
Result<EnvSpeed> MeasureEnvironment(const std::string& id, const EnvOptions& options, int size,
                                    Duration how_long);

}  // namespace troop
