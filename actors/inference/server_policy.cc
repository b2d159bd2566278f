// Selects the policy of an inference server: on a GPU or on the CPU.

#include "actors/inference/gpu_policy.h"
#include "actors/policy.h"
#include "core/base/log.h"
#include "nn/models/model.h"

namespace troop {

// Continuous actions have no GPU implementation.
Result<std::unique_ptr<Policy>> MakeServerPolicy(const ActingConfig& config, const EnvSpec& env,
                                                 int size) {
  TROOP_RETURN_IF_ERROR(CheckActions(config.model, env));
  if (config.inference.device == DeviceChoice::kCpu || !env.action.discrete()) {
    return MakeLocalPolicy(config, env, size);
  }
  auto on_device = MakeGpuPolicy(config, env, size);
  if (on_device.ok() || config.inference.device == DeviceChoice::kCuda) return on_device;
  // A missing GPU is normal; one that exists and is not used is logged.
  if (on_device.status().code() != Code::kUnavailable)
    LogInfo("actions are computed on the CPU: {}", on_device.status().message());
  return MakeLocalPolicy(config, env, size);
}

}  // namespace troop
