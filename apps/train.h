#pragma once

#include <span>
#include <string>

#include "apps/slurm_fleet.h"
#include "core/config.h"

namespace troop {

struct TrainOptions {
  bool dry_run = false;
  bool overwrite = false;
  bool plain = false;  // lines instead of the live block
  bool resume = false;
  const SlurmFleet::Options* slurm = nullptr;  // in a job of Slurm: its nodes
  bool* wants_more = nullptr;                  // set: the run was ended by SIGUSR1, to go on later
  bool learners_elsewhere = false;             // of mpirun: all but learner 0 come by themselves
  std::string launch;                          // of mpirun: tells rank 0's word from older ones
};
// Starts the fleet of a config on this machine, supervises it, shows progress, ends. Returns the
// exit code; all messages went to standard error and standard output.
int Train(const Config& config, const TrainOptions& options);

}  // namespace troop
