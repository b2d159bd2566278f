// Implements the choice of the engine that `troop train` and `troop resume` use.
#include "apps/train_command.h"

#include "apps/kubernetes.h"
#include "apps/mpi.h"
#include "apps/slurm_command.h"

namespace troop {

int TrainOnEngine(const Config& config, const TrainOptions& options) {
  const std::string& engine = config.fleet.engine;
  if (engine == "kubernetes") return WriteForKubernetes(config, options);
  if (engine == "slurm") return SubmitSlurm(config, options);
  if (engine == "mpi") return TrainMpi(config, options);
  return Train(config, options);
}

}  // namespace troop
