#pragma once

#include "core/config.h"
#include "core/spec.h"
#include "nn/cuda/q_network.h"
#include "nn/module.h"

namespace troop {

// What a GPU computes for `network`, the config's. Errors: kInvalidArgument: what the config asks
// for can only be computed on the CPU, with its key.
Result<cuda::QNetworkSpec> QNetworkSpecOf(const Config& config, const EnvSpec& env,
                                          const Module& network);
// network.precision there. Errors: kInvalidArgument: this device has no such products.
Result<cuda::Precision> DevicePrecisionOf(const Config& config, const cuda::DeviceInfo& info);

}  // namespace troop
