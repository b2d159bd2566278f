#pragma once

#include <cstdint>
#include <string>

#include "datasets/data_config.h"
#include "datasets/sparse/ngram_vectorizer.h"
#include "learners/learner_config.h"
#include "nn/model_config.h"
#include "nn/models/model_setup.h"
#include "nn/network_config.h"
#include "nn/optimizer_config.h"
#include "nn/sparse/linear_config.h"
#include "paramserver/paramserver_config.h"
#include "replay/replay_config.h"

namespace troop {

// The settings of a run on which its learners depend. Members have the names of their keys; those
// of other sections are single values.
struct TrainingConfig {
  std::int64_t seed = 1;
  BudgetConfig run;
  NetworkConfig network;
  ReplayConfig replay;
  LearnerConfig learner;
  DataConfig data;
  NgramOptions features;
  ModelConfig model;
  LinearConfig linear;
  MeshConfig mesh;
  PipelineConfig pipeline;
  ParamServerConfig paramserver;
  OptimizerConfig optimizer;
  CheckpointConfig checkpoint;
  std::int64_t learners = 1;       // fleet.learners
  bool serial = false;             // fleet.mode = "serial"
  double shutdown_grace_s = 5;     // fleet.shutdown_grace_s
  std::string env_id;              // env.id
  std::int64_t frame_stack = 1;    // env.frame_stack
  double observation_clip = 0;     // env.observation_clip
  double reward_scale = 1;         // env.reward_scale
  double reward_clip = 0;          // env.reward_clip
  bool normalize_rewards = false;  // env.normalize_rewards
  std::int64_t n_step = 3;         // actor.n_step
  std::int64_t unroll_length = 0;  // actor.unroll_length
  std::int64_t burn_in = 0;        // actor.burn_in
  std::int64_t rollout_steps = 0;  // learner.synchronous: steps per learner and rollout; else 0
  std::int64_t insert_copies = 1;  // actor.insert_copies
  bool evaluator_enabled = true;   // evaluator.enabled
  std::string log_dir = "runs";    // log.dir
  std::string data_identity;       // ReviewData::Identity of the run's data; empty: not known
  std::string config_toml;         // the whole config, which checkpoints contain
  std::uint32_t group_token = 0;   // equal in all learners of a run: the CRC-32C of its config
};

// Names the data of a run (SharedData): equal in all its roles. Empty: the data are not fixed yet.
inline std::string DataKeyOf(const TrainingConfig& config) {
  if (config.config_toml.empty() || config.data_identity.empty()) return "";
  return config.config_toml + "\n" + config.data_identity;
}

// The part on which the model depends.
inline ModelSetup ModelSetupOf(const TrainingConfig& config) {
  return {.algorithm = config.learner.algorithm,
          .library = config.learner.library,
          .network = config.network,
          .frame_stack = config.frame_stack,
          .observation_clip = config.observation_clip,
          .critic = config.learner.critic,
          .atoms = config.learner.atoms,
          .v_min = config.learner.v_min,
          .v_max = config.learner.v_max,
          .action_gradient_clip = config.learner.action_gradient_clip,
          .initial_temperature = config.learner.initial_temperature,
          .model = config.model,
          .max_length = config.data.max_length};
}

// True for supervised runs of linear models ([linear], [features]).
inline bool IsLinearModel(const TrainingConfig& config) {
  return IsSupervised(config.learner) && config.model.architecture == ModelArchitecture::kLinear;
}

// True for supervised runs on images (data.images) instead of texts.
inline bool ClassifiesImages(const TrainingConfig& config) {
  return IsSupervised(config.learner) && ClassifiesImages(config.model.architecture);
}

}  // namespace troop
