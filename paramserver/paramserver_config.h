#pragma once

#include <cstdint>

#include "paramserver/paramserver_modes.h"

namespace troop {

class ConfigVisitor;

// The parameter server ([paramserver]).
struct ParamServerConfig {
  std::int64_t shards = 1;  // processes that share the parameters
  Sharding sharding = Sharding::kMemory;
  SyncMode mode = SyncMode::kBsp;
  std::int64_t k = 1;          // k_of_n
  bool cancel = false;         // k_of_n
  bool per_batch = false;      // k_of_n
  std::int64_t staleness = 0;  // ssp
  bool staleness_discount = false;
  std::int64_t warm_start_updates = 0;  // async
  std::int64_t hogwild_threads = 1;     // async: threads of a shard
  std::int64_t pull_every = 1;          // updates between pulls
  std::int64_t push_every = 1;
  std::int64_t max_staleness = 0;  // drops older gradients; 0: off
  double outlier_sigmas = 0;       // drops gradients with outlying loss; 0: off
  double outlier_norm_sigmas = 0;  // drops gradients with outlying norm; 0: off
  GradientCodec compression = GradientCodec::kNone;
  double topk_ratio = 0.01;    // top_k
  double strom_threshold = 1;  // strom
  bool backup = false;         // a backup process per shard
  double lease_s = 2;          // in addition to fleet.heartbeat_timeout_s
  bool operator==(const ParamServerConfig&) const = default;
};
// Declares the keys.
void VisitKeys(ParamServerConfig& config, ConfigVisitor& visitor);

}  // namespace troop
