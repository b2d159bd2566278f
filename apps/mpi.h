#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "apps/train.h"

namespace troop {

// This process's place in what mpirun (Open MPI, MPICH, Intel MPI) or srun started, by environment
// variables alone: no MPI library is needed.
struct MpiPlace {
  std::int32_t rank = 0, size = 1;
  std::int32_t here = 0;  // ranks of this machine; 0: not told
  std::string launch;     // the same for all ranks of one launch, and for those alone
};
// Errors: kFailedPrecondition: not under mpirun; kInvalidArgument: a rank that is none.
Result<MpiPlace> FindMpiPlace();

// `mpirun -n N troop train CONFIG --engine mpi`: rank 0 is the launcher, with all roles of the
// config but learners 1 … N - 1, which the other ranks play. Those find rank 0 by the run's folder,
// which all of them must see. Returns the exit code.
int TrainMpi(const Config& config, const TrainOptions& options);

}  // namespace troop
