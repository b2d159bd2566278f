#pragma once

#include "fleet/config/config.h"

namespace troop {

// A serial fleet that does all that one does, in some milliseconds.
inline Config SmallSerial() {
  Config config;
  LayerConfig layer;
  layer.type = LayerType::kLinear;
  layer.units = 16;
  config.network.layers = {layer};
  config.fleet.mode = FleetMode::kSerial;
  config.fleet.actors = 2;
  config.actor.envs = 4;
  config.actor.insert_batch_size = 20;
  config.actor.lease_steps = 100;
  config.actor.weight_sync_steps = 10;
  config.replay.min_items = 100;
  config.replay.capacity_items = 2000;
  config.replay.samples_per_insert = 4;
  config.learner.batch_size = 16;
  config.run.total_steps = 1500;
  config.learner.publish_every_updates = 10;
  config.evaluator.every_s = 0.2;
  config.evaluator.episodes = 2;
  config.evaluator.final_episodes = 20;
  return config;
}

}  // namespace troop
