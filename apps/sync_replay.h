#pragma once

#include <cstdint>
#include <vector>

#include "apps/sync_case.h"
#include "apps/sync_problem.h"
#include "apps/sync_reference.h"

namespace troop {

// What the parameters must be, given only the order in which messages came: when a push counts and
// how much, what a pull gives and when, what learners compute meanwhile. Plain loops in f64.
struct SyncExpected {
  Doubles value;                        // [P]
  std::vector<std::uint64_t> versions;  // of each shard
};
// Errors: kDataLoss: a message came that no learner could have sent by then, or sent otherwise.
Result<SyncExpected> ReplaySync(const SyncCase& sync_case, const SyncProblem& problem,
                                const ShardMap& map, const std::vector<SyncArrival>& arrivals);

}  // namespace troop
