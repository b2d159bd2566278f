#pragma once

#include "apps/sweep/sweep_grid.h"

namespace troop {

// Options of `troop sweep`.
struct SweepOptions {
  SweepArguments arguments;
  int jobs = 0;            // concurrent runs; 0: as many as the cores allow
  bool overwrite = false;  // restart all runs
  bool dry_run = false;    // only print the runs and their state
};
// `troop sweep`: trains all runs, each as a separate `troop train`, and writes a table and a plot.
// Skips finished runs and resumes stopped ones. Returns the exit code: 1 if a run failed, after the
// other runs have been trained.
int Sweep(const SweepOptions& options);

}  // namespace troop
