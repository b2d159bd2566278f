#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/status.h"
#include "core/time.h"
#include "envs/vector_env.h"

namespace troop {

// How fast random actions are played in a vector of environments. A step is one environment's.
struct EnvSpeed {
  std::vector<double> steps_per_s;  // of each of kParts parts, ascending
  std::optional<double> inside;     // seconds a step in the environments' own code, where they are
                                    // in processes of their own
  double a_step = 0;                // seconds, all parts together
  double median() const { return steps_per_s[steps_per_s.size() / 2]; }
};
// Plays for about that long, after a tenth of it that doesn't count. Errors: those of
// MakeVectorEnv, and of its status().
inline constexpr int kEnvSpeedParts = 5;
Result<EnvSpeed> MeasureEnvironment(const std::string& id, const EnvOptions& options, int size,
                                    Duration how_long);

}  // namespace troop
