// Selects the instruction set of the batched CartPole step; the baseline is SSE2, two environments.

#include "envs/classic_control/cartpole_batch.h"

#include "core/base/check.h"
#include "envs/classic_control/cartpole_simd.h"

namespace troop::cartpole {

// For messages and benchmarks.
std::string_view PathName(Path path) {
  switch (path) {
    case Path::kBaseline:
      return "baseline";
    case Path::kAvx2:
      return "avx2";
    case Path::kAvx512:
      return "avx512";
  }
  return "unknown";
}

// Checks every flag that cmake/TroopSourceFlags.cmake sets for the file of that path.
bool Supported(Path path) {
  if (path == Path::kBaseline) return true;
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi2");
  if (path == Path::kAvx2) return avx2;
  return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

// All paths give equal results, so the choice affects speed only.
Path FastestPath() {
  if (Supported(Path::kAvx512)) return Path::kAvx512;
  return Supported(Path::kAvx2) ? Path::kAvx2 : Path::kBaseline;
}

// Each path is compiled in a file with the flags of its instruction set.
StepFunction StepFor(Path path) {
  TROOP_CHECK(Supported(path), "this machine does not support {}", PathName(path));
  switch (path) {
    case Path::kBaseline:
      return &StepBaseline;
    case Path::kAvx2:
      return &StepAvx2;
    case Path::kAvx512:
      return &StepAvx512;
  }
  return &StepBaseline;
}

void StepBaseline(const BatchStep& step) { StepAll<2>(step); }

}  // namespace troop::cartpole
