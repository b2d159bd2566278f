#pragma once

#include <cstdint>
#include <vector>

#include "apps/selfcheck/reference_fp64.h"
#include "apps/selfcheck/sync_case.h"
#include "apps/selfcheck/toy_model.h"

namespace troop {

// The expected parameters, computed from the order of the messages alone.
struct SyncExpected {
  Doubles value;                        // [P]
  std::vector<std::uint64_t> versions;  // of each shard
};
// Simulates shards and learners in f64: when a push counts and with which weight, when a pull is
// answered and with which parameters, and what learners compute in between. Errors: kDataLoss: a
// message that no learner could have sent at that time, or with other content.
Result<SyncExpected> ReplaySync(const SyncCase& sync_case, const ToyModel& problem,
                                const ShardMap& map, const std::vector<SyncArrival>& arrivals);

}  // namespace troop
