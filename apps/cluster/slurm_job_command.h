#pragma once

#include "apps/command_line.h"

namespace troop {

// Adds the internal command `troop slurm-job` to `app`, which the script of a submission runs.
void RegisterSlurmJob(CLI::App& app, ChosenCommand* chosen);

}  // namespace troop
