#pragma once

#include <cstdint>
#include <string>

#include "actors/actor_config.h"
#include "actors/evaluator_config.h"
#include "actors/inference/inference_config.h"
#include "envs/env_config.h"
#include "nn/models/model_setup.h"
#include "replay/replay_config.h"

namespace troop {

// The settings of a run on which actors, inference servers and the evaluator depend. Members have
// the names of their keys; those of other sections are single values.
struct ActingConfig {
  std::int64_t seed = 1;
  EnvConfig env;
  ActorConfig actor;
  InferenceConfig inference;
  EvaluatorConfig evaluator;
  ReplayConfig replay;
  ModelSetup model;
  std::int64_t actors = 1;          // fleet.actors
  double metrics_every_s = 1;       // log.metrics_every_s
  double gamma = 0.99;              // learner.gamma
  bool value_rescaling = true;      // learner.value_rescaling
  double value_clip = 0;            // learner.value_clip
  bool synchronous = false;         // learner.synchronous
  double priority_max_share = 0.9;  // learner.priority_max_share
  bool serial = false;              // fleet.mode = "serial": all roles in one thread
  std::string env_code;             // Config::env_code
};

// Number of inference servers; 0 if actors evaluate the policy themselves. REQUIRES: an agent's
// run.
inline std::int64_t InferenceServersOf(const ActingConfig& config) {
  return config.actor.inference == InferencePlace::kServer ? config.inference.servers : 0;
}

}  // namespace troop
