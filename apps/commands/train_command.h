#pragma once

#include "apps/launch/train.h"
#include "core/config/config.h"

namespace troop {

// Starts a training run with the engine of fleet.engine. local: trains on this machine (Train).
// mpi: this process is one rank of an mpirun launch (TrainMpi). Both block until the run ends.
// slurm: submits a job. kubernetes: writes manifests. Returns the exit code; messages are printed
// to standard output and standard error.
int TrainOnEngine(const Config& config, const TrainOptions& options);

}  // namespace troop
