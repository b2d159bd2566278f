#pragma once

#include <string>

#include "apps/launch/train.h"

namespace troop {

// Files of one sbatch submission.
struct SlurmSubmission {
  std::string
      folder;  // <log.dir>/<name>.slurm, next to the run folder: script, config, output, keys
  std::string script;  // text of its job.sh
  std::string config;  // text of its train.toml
};
// Builds the script and the config. `program`: path of troop on the nodes. Pure.
SlurmSubmission MakeSubmission(const Config& config, const std::string& program,
                               const TrainOptions& options);

// `troop train|resume --engine slurm`: submits the job, or prints it (dry_run). Returns the exit
// code.
int SubmitSlurm(const Config& config, const TrainOptions& options);

// Options of the internal command `troop slurm-job`.
struct SlurmJobOptions {
  std::string config;  // train.toml of the submission
  TrainOptions train;
};
// Runs the launcher on the job's first node; its roles are steps of the job. A requeued job resumes
// from the newest checkpoint. Returns the exit code.
int RunSlurmJob(const SlurmJobOptions& options);

// Generates keys for a config that has none, so that roles on other machines can authenticate: once
// per `folder`, which has mode 0700. Does nothing if keys or `security.insecure` are set.
Status GiveKeys(Config* config, const std::string& folder);

}  // namespace troop
