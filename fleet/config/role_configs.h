#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "actors/acting_config.h"
#include "core/base/status.h"
#include "envs/environment.h"
#include "fleet/config/config.h"
#include "learners/training_config.h"
#include "nn/models/model_setup.h"
#include "paramserver/shard_config.h"
#include "paramserver/weights_config.h"
#include "replay/replay_setup.h"

// The parts of a run's configuration on which each of its roles depends. Each folder below fleet/
// takes such a part, and not the whole Config.
namespace troop {

// The part on which the model depends.
ModelSetup ModelSetupOf(const Config& config);

// The settings of the replay and of its samplers.
ReplaySetup ReplaySetupOf(const Config& config);

// For learners, and for the evaluator of a supervised run. group_token leaves out the counts that
// `troop scale` changes during a run. Prints the config twice.
TrainingConfig TrainingConfigOf(const Config& config);
// TrainingConfigOf of the config in a checkpoint. file_name: of the text, for messages. Errors:
// those of ParseSavedConfig.
Result<TrainingConfig> ParseTrainingConfig(std::string_view config_toml,
                                           const std::string& file_name);

// For actors, inference servers and the evaluator.
ActingConfig ActingConfigOf(const Config& config);

// Options of the environment.
EnvOptions EnvOptionsOf(const Config& config);
// The settings of the parameter shards and of the election of their primaries.
ShardConfig ShardConfigOf(const Config& config);
// The settings of readers of the weights.
WeightsConfig WeightsConfigOf(const Config& config);
// Initial number of parameter servers: one weight publisher, or the shards and their backups.
std::int32_t ParameterServersOf(const Config& config);

}  // namespace troop
