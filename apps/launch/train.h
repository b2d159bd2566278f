#pragma once

#include <span>
#include <string>

#include "core/config/config.h"
#include "fleet/launcher/slurm_launcher.h"

namespace troop {

// Command-line options of `troop train`, and the context of a Slurm job or of mpirun.
struct TrainOptions {
  bool dry_run = false;
  bool overwrite = false;
  bool plain = false;  // lines instead of the live block
  bool resume = false;
  const SlurmLauncher::Options* slurm = nullptr;  // the nodes of a Slurm job; null outside one
  bool* requeue_requested = nullptr;              // out: true if SIGUSR1 ended the run (requeue it)
  bool external_learners = false;                 // mpirun starts all learners but learner 0
  std::string launch;                             // mpirun: id that marks this launch in run.json
};
// Starts the fleet of a config on this machine, supervises it and shows progress until the run
// ends. Returns the exit code; messages are printed to standard output and standard error.
int Train(const Config& config, const TrainOptions& options);

}  // namespace troop
