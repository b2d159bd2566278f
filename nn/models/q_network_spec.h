#pragma once

#include "core/config/config.h"
#include "core/tensor/spec.h"
#include "nn/cuda/q_network.h"
#include "nn/module.h"

namespace troop {

// Describes the config's `network` for a GPU. Errors: kInvalidArgument: the config requires
// something that only the CPU supports; names the key.
Result<cuda::QNetworkSpec> QNetworkSpecOf(const Config& config, const EnvSpec& env,
                                          const Module& network);
// network.precision on a GPU. Errors: kInvalidArgument: the device does not support it.
Result<cuda::Precision> DevicePrecisionOf(const Config& config, const cuda::DeviceInfo& info);

}  // namespace troop
