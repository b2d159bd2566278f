#pragma once

#include <string>

#include "paramserver/paramserver_config.h"

namespace troop {

// The settings of a run that decide where readers get its weights.
struct WeightsConfig {
  std::string sync = "allreduce";  // learner.sync; "paramserver": the parameter shards
  ParamServerConfig paramserver;
};

}  // namespace troop
