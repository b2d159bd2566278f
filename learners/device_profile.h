#pragma once

#include <string>

#include "collective/nccl.h"
#include "core/config.h"
#include "core/status.h"
#include "nn/tensor_place.h"

// What plans and reports want to know of this machine's GPUs.
namespace troop {

int GpusHere();
// The name of the GPU on which a learner of reviews would compute here, by learner.device. Errors:
// as MakeDeviceSupervised's; kUnavailable where the config wants none.
Result<std::string> GpuOf(const Config& config);
// FLOP/s of its large products in network.precision, the best of a few; what a model could reach.
// Takes some 0.1 s. Errors: as GpuOf's.
Result<double> MeasureGpuPeak(const Config& config);

// Of a part of a model: bytes of a GPU's memory that a learner takes for updates of so many tokens
// and outputs at a time, without what the driver takes. Errors: as GpuOf's.
Result<double> PredictGpuBytes(const Config& config, const TensorPlace& place, double tokens,
                               double outputs);

// An all-reduce between two GPUs by NCCL: seconds of one of `floats` numbers, the median of `tries`
// as the first rank sees them. Errors: as MakeNcclGroup's.
Result<double> TimeGpuAllReduce(int first, int second, const NcclOptions& nccl, std::int64_t floats,
                                int tries);

}  // namespace troop
