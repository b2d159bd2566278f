#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "paramserver/paramserver_config.h"

namespace troop {

// Synchronization of several learners.
enum class LearnerSync : std::uint8_t { kAllReduce, kParamServer };
constexpr auto EnumNames(LearnerSync) {
  return std::to_array<std::string_view>({"allreduce", "paramserver"});
}

// The settings of a run that decide where readers get its weights.
struct WeightsConfig {
  LearnerSync sync = LearnerSync::kAllReduce;  // learner.sync; "paramserver": the parameter shards
  ParamServerConfig paramserver;
};

}  // namespace troop
