#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fleet/config/config.h"
#include "paramserver/codec/gradient_codec.h"
#include "paramserver/service/local_replica.h"
#include "paramserver/shard/outlier_filter.h"
#include "paramserver/shard/shard_map.h"
#include "paramserver/shard/sync_policy.h"

namespace troop {

// One setting of synchronization through parameter shards.
struct SyncCase {
  int shards = 1;
  Sharding sharding = Sharding::kMemory;
  SyncOptions sync;
  GradientFilterOptions guards;
  ReplicaOptions replica;
  CodecOptions codec;
  Config config;  // the optimizer; biases have no weight decay
  float learning_rate = 0.05f;
  std::uint64_t updates = 12;  // of each shard, at least
  std::uint64_t seed = 1;      // of the data and of the message order
  bool sockets = false;        // threads and TCP; else one thread and the simulated network
  bool backup = false;         // each shard has a backup, which must end bit-equal; simulated only
};

// One message that reached a shard, with the content that the learner was free to choose. Or
// (`backed_up`) the acknowledgement of a backup, before which the shard sends no reply and makes no
// further update.
struct SyncArrival {
  int shard = 0;  // index in the map
  bool push = false;
  bool backed_up = false;
  std::int32_t learner = 0;
  std::uint64_t sequence = 0;
  std::vector<CodedGradient> parts;
};

// The result of a run with the real shards, clients and replicas: the order of the messages, and
// the shards' parameters after them.
struct SyncTrace {
  std::vector<SyncArrival> arrivals;
  std::vector<float> value;             // [P]
  std::vector<std::uint64_t> versions;  // of each shard
  std::vector<float> backups;           // [P], those of the backups; empty: no backups
};

}  // namespace troop
