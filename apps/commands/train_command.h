#pragma once

#include "apps/launch/train.h"
#include "core/config/config.h"

namespace troop {

// Trains on the config's fleet.engine: here (Train), as a Slurm job, by mpirun, or as manifests for
// Kubernetes. Returns the exit code; all messages went to standard error and standard output.
int TrainOnEngine(const Config& config, const TrainOptions& options);

}  // namespace troop
