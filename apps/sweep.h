#pragma once

#include "apps/sweep_plan.h"

namespace troop {

struct SweepOptions {
  SweepArguments arguments;
  int jobs = 0;            // runs side by side; 0: as many as the machine has cores for
  bool overwrite = false;  // begins all runs anew
  bool dry_run = false;    // says what it would run
};
// Trains all runs of a sweep, each a `troop train` of its own, and writes their table and picture.
// Finished runs are not run again, and one that was stopped goes on. Returns the exit code: 1 where
// a run failed (the others are trained all the same).
int Sweep(const SweepOptions& options);

}  // namespace troop
