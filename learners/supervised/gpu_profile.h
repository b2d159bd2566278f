#pragma once

#include <string>

#include "collective/nccl/nccl.h"
#include "core/base/status.h"
#include "learners/training_config.h"
#include "nn/parallel/shard_placement.h"

// Capabilities of this machine's GPUs, for plans and reports.
namespace troop {

// Number of GPUs that CUDA finds on this machine.
int GpusHere();
// Name of the GPU that a supervised learner would use here, by learner.device. Errors: as
// MakeGpuSupervised; kUnavailable if the config selects the CPU.
Result<std::string> GpuOf(const TrainingConfig& config);
// Measured peak FLOP/s of large matrix products in network.precision (the best of a few), an upper
// bound for a model. Takes about 0.1 s. Errors: as GpuOf.
Result<double> MeasureGpuPeak(const TrainingConfig& config);

// Predicted GPU memory in bytes that a learner with this part of a model needs for updates of that
// many tokens and outputs at a time, without the driver's share. Errors: as GpuOf.
Result<double> PredictGpuBytes(const TrainingConfig& config, const TensorParallelRank& place,
                               double tokens, double outputs);

// Seconds of one NCCL all-reduce of `floats` floats between two GPUs: the median of `tries`,
// measured at the first rank. Errors: as MakeNcclGroup.
Result<double> TimeGpuAllReduce(int first, int second, const NcclOptions& nccl, std::int64_t floats,
                                int tries);

}  // namespace troop
