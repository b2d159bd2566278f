#pragma once

#include <cstdint>
#include <vector>

#include "apps/sync_problem.h"
#include "apps/sync_reference.h"
#include "core/config.h"

namespace troop {

// Gradients that several threads apply to one value without locks: pushes inside a shard, or steps
// of learners on one arena. With one thread each gradient is of the newest value. With more all are
// of the first value, as if all threads had read before any wrote: then SGD ends at one point, in
// whatever order they come, and a lost change would be seen.
struct HogwildCase {
  bool shard = true;  // otherwise learners
  int threads = 1;
  Config config;  // the optimizer; more than one thread: plain SGD
  float learning_rate = 0.05f;
  int steps = 32;
  std::uint64_t seed = 1;
};
// [P]. Errors: kDeadlineExceeded, or what a shard says.
Result<std::vector<float>> RunHogwildCase(const HogwildCase& hogwild_case);
Doubles ReplayHogwild(const HogwildCase& hogwild_case, const SyncProblem& problem);

}  // namespace troop
