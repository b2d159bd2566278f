#pragma once

#include "core/base/status.h"
#include "fleet/run/run_directory.h"
#include "fleet/run/run_state.h"

namespace troop {

// Replaces the step count in the final checkpoint by that of the view: the learner's count is up to
// one heartbeat old. Prints a failure to standard error.
void CorrectFinalCheckpoint(const RunFolder& folder, const RunView& view);

// Prints how a run ended and where its results are. A supervised run also gets report.md in its
// folder. interrupted: true if the user or a time limit stopped it. Returns the exit code.
int ReportOutcome(const RunFolder& folder, const RunView& view, const Status& outcome,
                  bool interrupted);

}  // namespace troop
