#pragma once

#include <vector>

#include "apps/sync_case.h"
#include "apps/sync_problem.h"

namespace troop {

// Errors: kInvalidArgument: a case that can't be.
Result<ShardMap> MapOf(const SyncCase& sync_case, const SyncProblem& problem);

// Runs a case with the real things: ShardServers and ShardClients with LocalReplicas, until each
// shard has had its updates. One thread over a simulated network, in an order that the seed draws;
// or a thread each over TCP. Errors: kDeadlineExceeded; what a client or a network says.
Result<SyncTrace> RunSync(const SyncCase& sync_case, const SyncProblem& problem);

// What learners in step must end with, bit for bit, after so many updates: one device that adds up
// the learners' gradients in f32, in their order. No shards, no codecs, no messages. [P]
std::vector<float> RunOneDevice(const SyncCase& sync_case, const SyncProblem& problem,
                                std::uint64_t updates);
// Whether RunOneDevice says what this case gives.
bool IsInStep(const SyncCase& sync_case);

}  // namespace troop
