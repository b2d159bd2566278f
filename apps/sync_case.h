#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/config.h"
#include "paramserver/gradient_codec.h"
#include "paramserver/local_replica.h"
#include "paramserver/push_guards.h"
#include "paramserver/shard_map.h"
#include "paramserver/sync_policy.h"

namespace troop {

// One way in which learners agree through parameter shards.
struct SyncCase {
  int shards = 1;
  Sharding sharding = Sharding::kMemory;
  SyncOptions sync;
  GuardOptions guards;
  ReplicaOptions replica;
  CodecOptions codec;
  Config config;  // the optimizer; biases are without its weight decay
  float learning_rate = 0.05f;
  std::uint64_t updates = 12;  // of each shard, at least
  std::uint64_t seed = 1;      // of the numbers, and of who comes when
  bool sockets = false;        // threads and TCP; otherwise one thread and a simulated network
  bool backup = false;         // each shard has one, which must end with the same bits; simulated
};

// One message that reached a shard; what is in it only as far as a learner had a choice. Or the
// word of its backup that it has all, before which nobody is answered and no update made.
struct SyncArrival {
  int shard = 0;  // place in the map
  bool push = false;
  bool backed_up = false;
  std::int32_t learner = 0;
  std::uint64_t sequence = 0;
  std::vector<CodedGradient> parts;
};

// What a run of the real shards, clients and replicas left: the order in which messages came, and
// the shards' parameters after them.
struct SyncTrace {
  std::vector<SyncArrival> arrivals;
  std::vector<float> value;             // [P]
  std::vector<std::uint64_t> versions;  // of each shard
  std::vector<float> backups;           // [P] as the backups have it; empty: there are none
};

}  // namespace troop
