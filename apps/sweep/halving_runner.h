#pragma once

#include "apps/sweep/sweep_grid.h"
#include "core/base/status.h"
#include "core/storage/storage.h"

namespace troop {

// Options of a sweep with successive halving.
struct HalvingOptions {
  int jobs = 1;            // concurrent runs
  bool overwrite = false;  // restart all trials
  bool dry_run = false;    // only print the state
};
// Trains the trials of a plan by asynchronous successive halving, each job as a child process
// `troop train --continue`, and writes the table and the plot. Decisions are in the journal of the
// folder, so a call after a crash continues with the same ones: it first completes the jobs that
// had begun. A run that crashes, diverges or has no score counts as the worst of its rung.
//
// Returns the exit code: 1 if no trial has a score; 130 after a signal. Blocks. Errors: those of
// HalvingJournal::Read; kAlreadyExists: a folder holds a run of another config. REQUIRES:
// plan.halving; the caller holds the lock of the folder, except for a dry run.
Result<int> RunHalving(const SweepPlan& plan, Storage* folder, const HalvingOptions& options);

}  // namespace troop
