#pragma once

#include <vector>

#include "apps/selfcheck/sync_case.h"
#include "apps/selfcheck/toy_model.h"

namespace troop {

// The shard map of a case. Errors: kInvalidArgument: an impossible case.
Result<ShardMap> MapOf(const SyncCase& sync_case, const ToyModel& problem);

// Runs a case with the real ShardServers, ShardClients and LocalReplicas until each shard has made
// its updates: in one thread over the simulated network, in an order chosen by the seed; or with
// one thread each over TCP. Errors: kDeadlineExceeded; those of clients and networks.
Result<SyncTrace> RunSync(const SyncCase& sync_case, const ToyModel& problem);

// The parameters that synchronous learners must reach bit for bit after `updates` updates, [P]: one
// device adds the learners' gradients in f32, in learner order, without shards, codecs or messages.
std::vector<float> RunOneDevice(const SyncCase& sync_case, const ToyModel& problem,
                                std::uint64_t updates);
// True if the case is synchronous and lossless, so that it must equal RunOneDevice.
bool IsInStep(const SyncCase& sync_case);

}  // namespace troop
