#pragma once

#include <cstdint>

#include "nn/models/model_setup.h"
#include "nn/optimizer_config.h"
#include "paramserver/paramserver_config.h"

namespace troop {

// The settings of a run on which its parameter shards depend. Members have the names of their keys;
// those of other sections are single values.
struct ShardConfig {
  std::int64_t seed = 1;
  ModelSetup model;
  ParamServerConfig paramserver;
  OptimizerConfig optimizer;
  std::int64_t workers = 1;          // WorkersOf(fleet.learners, mesh.tp)
  std::int64_t max_updates = 0;      // run.max_updates
  double snapshot_every_s = 60;      // checkpoint.every_s
  double heartbeat_timeout_s = 1.5;  // fleet.heartbeat_timeout_s
  double stall_timeout_s = 30;       // fleet.stall_timeout_s
};

}  // namespace troop
