#pragma once

#include <string>

#include "apps/train.h"

namespace troop {

// What goes to sbatch.
struct SlurmSubmission {
  std::string folder;  // <log.dir>/<name>.slurm, beside the run's: script, config, output, keys
  std::string script;  // text of its job.sh
  std::string config;  // text of its train.toml
};
// `program`: path of troop on the nodes. Pure.
SlurmSubmission MakeSubmission(const Config& config, const std::string& program,
                               const TrainOptions& options);

// `troop train|resume --engine slurm`: submits the job, or prints it (dry_run). Returns the exit
// code.
int SubmitSlurm(const Config& config, const TrainOptions& options);

struct SlurmJobOptions {
  std::string config;  // train.toml of the submission
  TrainOptions train;
};
// What job.sh runs on the job's first node: the launcher, whose roles are steps of the job. Goes on
// from the newest checkpoint where the job was queued again. Returns the exit code.
int RunSlurmJob(const SlurmJobOptions& options);

// Keys of a run whose config has none, for roles on other machines: made once, in a folder of mode
// 0700. Changes nothing where keys are set, or `security.insecure`.
Status GiveKeys(Config* config, const std::string& folder);

}  // namespace troop
