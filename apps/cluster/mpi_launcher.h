#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "apps/launch/train.h"

namespace troop {

// The rank of this process in a launch by mpirun (Open MPI, MPICH, Intel MPI) or srun, from
// environment variables: no MPI library is needed.
struct MpiPlace {
  std::int32_t rank = 0, size = 1;
  std::int32_t here = 0;  // number of ranks on this machine; 0: unknown
  std::string launch;     // identifies the launch: equal for its ranks, different for others
};
// Reads the environment. Errors: kFailedPrecondition: not under mpirun; kInvalidArgument: an
// invalid rank.
Result<MpiPlace> FindMpiPlace();

// `mpirun -n N troop train CONFIG --engine mpi`: rank 0 is the launcher and runs all roles but
// learners 1 … N - 1, which are the other ranks. They find rank 0 through the run folder, which
// must be shared. Returns the exit code.
int TrainMpi(const Config& config, const TrainOptions& options);

}  // namespace troop
