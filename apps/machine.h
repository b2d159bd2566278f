#pragma once

#include "core/config.h"
#include "core/spec.h"
#include "core/status.h"

namespace troop {

// What a run will take on this machine.
struct RunNeeds {
  EnvSpec env;
  std::int64_t parameters = 0;
  double replay_bytes = 0, replay_bytes_max = 0;
};
// Errors: the environment or the network can't be made.
Result<RunNeeds> PredictNeeds(const Config& config);
// Problems that only this machine can show: memory, environment. Before any process starts.
Status CheckMachine(const Config& config);
// Topology, endpoints, predicted memory: --dry-run.
Result<std::string> DescribeRun(const Config& config);

}  // namespace troop
