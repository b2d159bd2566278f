#pragma once

#include "core/base/status.h"
#include "core/tensor/spec.h"
#include "nn/cuda/q_network.h"
#include "nn/models/model_setup.h"
#include "nn/module.h"

namespace troop {

// Describes `network`, which `setup` describes, for a GPU. Errors: kInvalidArgument: it requires
// something that only the CPU supports; names the key.
Result<cuda::QNetworkSpec> QNetworkSpecOf(const ModelSetup& setup, const EnvSpec& env,
                                          const Module& network);
// network.precision on a GPU. Errors: kInvalidArgument: the device does not support it.
Result<cuda::Precision> DevicePrecisionOf(const ModelSetup& setup, const cuda::DeviceInfo& info);

}  // namespace troop
