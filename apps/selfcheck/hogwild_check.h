#pragma once

#include <cstdint>
#include <vector>

#include "apps/selfcheck/reference_fp64.h"
#include "apps/selfcheck/toy_model.h"
#include "fleet/config/config.h"

namespace troop {

// Gradients that several threads apply to the same parameters without locks: pushes inside a shard,
// or steps of learners on one arena. With one thread each gradient is taken at the newest
// parameters. With more, all gradients are taken at the initial parameters, as if all threads had
// read before any wrote: the result of SGD then does not depend on the order, and a lost change is
// detected.
struct HogwildCase {
  bool shard = true;  // false: learners on one arena
  int threads = 1;
  Config config;  // the optimizer; plain SGD with more than one thread
  float learning_rate = 0.05f;
  int steps = 32;
  std::uint64_t seed = 1;
};
// Runs a case with the real code; returns the parameters, [P]. Errors: kDeadlineExceeded, or those
// of the shard.
Result<std::vector<float>> RunHogwildCase(const HogwildCase& hogwild_case);
// The fp64 reference of a case, [P].
Doubles ReplayHogwild(const HogwildCase& hogwild_case, const ToyModel& problem);

}  // namespace troop
