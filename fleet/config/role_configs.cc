// Implements the conversion of a configuration to those of its roles.
#include "fleet/config/role_configs.h"

#include <cstdint>
#include <span>
#include <string>

#include "core/storage/crc32c.h"
#include "fleet/config/config_migration.h"
#include "paramserver/service/options_from_config.h"

namespace troop {
namespace {

// The token of the learners' rendezvous, which admits equal configs only: others would build
// different models from the same gradients.
std::uint32_t GroupTokenOf(Config config) {
  config.fleet.actors = config.fleet.learners = config.replay.shards = 1;
  const std::string text = ToToml(config);
  return Crc32c(std::as_bytes(std::span(text)));
}

}  // namespace

// The settings that determine the parameters of the network.
// Settings on which the layout of the parameters depends.
ModelSetup ModelSetupOf(const Config& config) {
  return {.algorithm = config.learner.algorithm,
          .library = config.learner.library,
          .network = config.network,
          .frame_stack = config.env.frame_stack,
          .observation_clip = config.env.observation_clip,
          .critic = config.learner.critic,
          .atoms = config.learner.atoms,
          .v_min = config.learner.v_min,
          .v_max = config.learner.v_max,
          .action_gradient_clip = config.learner.action_gradient_clip,
          .initial_temperature = config.learner.initial_temperature,
          .model = config.model,
          .max_length = config.data.max_length};
}

// Replay shards also need what determines the shape of items and batches.
ReplaySetup ReplaySetupOf(const Config& config) {
  return {.seed = config.seed,
          .replay = config.replay,
          .n_step = config.actor.n_step,
          .unroll_length = config.actor.unroll_length,
          .numbers_per_step = NumbersPerStep(config.learner),
          .state_columns = StateColumns(config.network.layers),
          .burn_in = config.actor.burn_in,
          .frame_stack = config.env.frame_stack,
          .batch_size = config.learner.batch_size};
}

namespace {

// Each environment plays one unroll, or several that end with their episodes.
std::int64_t RolloutStepsOf(const Config& config) {
  if (!config.learner.synchronous) return 0;
  return config.fleet.actors * config.actor.envs * config.actor.unroll_length /
         std::max<std::int64_t>(1, config.fleet.learners);
}

// The optimizer of parameter shards and of threads that share weights; a linear model has its rule
// in linear.solver.
OptimizerConfig OptimizerOf(const Config& config) {
  OptimizerConfig optimizer = config.optimizer;
  if (!IsLinearModel(config)) return optimizer;
  if (config.linear.solver == LinearSolver::kSgd) optimizer.type = OptimizerType::kSgd;
  if (config.linear.solver == LinearSolver::kAdaGrad) optimizer.type = OptimizerType::kAdaGrad;
  return optimizer;
}

// Pushes of a linear model have the elements that are not zero, with their indices: top_k sends no
// zeros, and with a ratio of 1 all others exactly. Local SGD pushes values.
ParamServerConfig ParamServerOf(const Config& config) {
  ParamServerConfig shards = config.paramserver;
  if (!IsLinearModel(config) || shards.mode == SyncMode::kLocalSgd ||
      shards.compression != GradientCodec::kNone) {
    return shards;
  }
  shards.compression = GradientCodec::kTopK;
  shards.topk_ratio = 1;
  return shards;
}

}  // namespace

// Learners get no section of the fleet or of the actors, only the values that they use.
TrainingConfig TrainingConfigOf(const Config& config) {
  return {.seed = config.seed,
          .run = config.run,
          .network = config.network,
          .replay = config.replay,
          .learner = config.learner,
          .data = config.data,
          .features = config.features,
          .model = config.model,
          .linear = config.linear,
          .mesh = config.mesh,
          .pipeline = config.pipeline,
          .paramserver = ParamServerOf(config),
          .optimizer = OptimizerOf(config),
          .checkpoint = config.checkpoint,
          .learners = config.fleet.learners,
          .serial = config.fleet.mode == FleetMode::kSerial,
          .shutdown_grace_s = config.fleet.shutdown_grace_s,
          .env_id = config.env.id,
          .frame_stack = config.env.frame_stack,
          .observation_clip = config.env.observation_clip,
          .reward_scale = config.env.reward_scale,
          .reward_clip = config.env.reward_clip,
          .normalize_rewards = config.env.normalize_rewards,
          .n_step = config.actor.n_step,
          .unroll_length = config.actor.unroll_length,
          .burn_in = config.actor.burn_in,
          .rollout_steps = RolloutStepsOf(config),
          .insert_copies = config.actor.insert_copies,
          .evaluator_enabled = config.evaluator.enabled,
          .log_dir = config.log.dir,
          .data_identity = config.data_identity,
          .config_toml = ToToml(config),
          .group_token = GroupTokenOf(config)};
}

// Actors, inference servers and the evaluator get the same settings.
ActingConfig ActingConfigOf(const Config& config) {
  return {.seed = config.seed,
          .env = config.env,
          .actor = config.actor,
          .inference = config.inference,
          .evaluator = config.evaluator,
          .replay = config.replay,
          .model = ModelSetupOf(config),
          .actors = config.fleet.actors,
          .metrics_every_s = config.log.metrics_every_s,
          .gamma = config.learner.gamma,
          .value_rescaling = config.learner.value_rescaling,
          .value_clip = config.learner.value_clip,
          .synchronous = config.learner.synchronous,
          .priority_max_share = config.learner.priority_max_share,
          .serial = config.fleet.mode == FleetMode::kSerial,
          .env_code = config.env_code};
}

// In serial mode a step waits for its environments, so that the order of events is fixed.
EnvOptions EnvOptionsOf(const Config& config) {
  return EnvOptionsFor(config.env, config.fleet.mode == FleetMode::kSerial);
}

// Parameter servers make the optimizer step, so they get its settings.
ShardConfig ShardConfigOf(const Config& config) {
  return {.seed = config.seed,
          .model = ModelSetupOf(config),
          .paramserver = config.paramserver,
          .optimizer = OptimizerOf(config),
          .workers = WorkersOf(config.fleet.learners, config.mesh.tp),
          .max_updates = config.run.max_updates,
          .snapshot_every_s = config.checkpoint.every_s,
          .heartbeat_timeout_s = config.fleet.heartbeat_timeout_s,
          .stall_timeout_s = config.fleet.stall_timeout_s};
}

WeightsConfig WeightsConfigOf(const Config& config) {
  return {.sync = config.learner.sync, .paramserver = config.paramserver};
}

// A single publisher, or the primaries and backups of all shards.
std::int32_t ParameterServersOf(const Config& config) {
  if (config.learner.sync != LearnerSync::kParamServer) return 1;
  return std::int32_t(config.paramserver.shards) * ServersPerShard(config.paramserver);
}

// The config in a checkpoint or a reply of the coordinator may be of an older version.
Result<TrainingConfig> ParseTrainingConfig(std::string_view config_toml,
                                           const std::string& file_name) {
  TROOP_ASSIGN_OR_RETURN(const Config config, ParseSavedConfig(config_toml, file_name, {}));
  return TrainingConfigOf(config);
}

}  // namespace troop
