// Implements the choice of the engine that `troop train` and `troop resume` use.
#include "apps/commands/train_command.h"

#include "apps/cluster/kubernetes_manifests.h"
#include "apps/cluster/mpi_launcher.h"
#include "apps/cluster/slurm_submit.h"

namespace troop {

// Kubernetes returns after writing the manifests, Slurm after the submission; mpi and local when
// the run has ended.
int TrainOnEngine(const Config& config, const TrainOptions& options) {
  const std::string& engine = config.fleet.engine;
  if (engine == "kubernetes") return WriteForKubernetes(config, options);
  if (engine == "slurm") return SubmitSlurm(config, options);
  if (engine == "mpi") return TrainMpi(config, options);
  return Train(config, options);
}

}  // namespace troop
