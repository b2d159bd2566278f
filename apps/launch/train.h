#pragma once

#include <span>
#include <string>

#include "fleet/config/config.h"
#include "fleet/launcher/slurm_launcher.h"

namespace troop {

// Command-line options of `troop train`, and the settings that a Slurm job or mpirun adds.
struct TrainOptions {
  bool dry_run = false;    // true if the plan of the run is only printed
  bool overwrite = false;  // true if a run of the same name is replaced
  bool plain = false;      // true if progress is printed as lines, not as a live block
  bool resume = false;     // true if the run continues from its newest checkpoint
  const SlurmLauncher::Options* slurm = nullptr;  // the nodes of a Slurm job; null outside one
  bool* requeue_requested = nullptr;              // out: true if SIGUSR1 ended the run (requeue it)
  bool external_learners = false;  // true if mpirun starts all learners but learner 0
  std::string launch;              // mpirun: id that marks this launch in run.json
};
// Starts the fleet of a config on this machine, supervises it and shows progress until the run
// ends. Returns the exit code; messages are printed to standard output and standard error.
int Train(const Config& config, const TrainOptions& options);

}  // namespace troop
