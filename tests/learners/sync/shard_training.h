#pragma once

#include "learners/training_config.h"
#include "tests/paramserver/shard_fleet.h"

namespace troop {

// The settings of a learner of the shards with this config (ShardFleet).
inline TrainingConfig ShardTrainingConfig(const ShardConfig& shards) {
  TrainingConfig config;
  config.learner.sync = LearnerSync::kParamServer;
  config.paramserver = shards.paramserver;
  config.optimizer = shards.optimizer;
  config.checkpoint.every_s = shards.snapshot_every_s;
  return config;
}

}  // namespace troop
