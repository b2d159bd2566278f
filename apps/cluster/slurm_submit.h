#pragma once

#include <string>

#include "apps/launch/train.h"

namespace troop {

// Files of one sbatch submission.
struct SlurmSubmission {
  // <log.dir>/<name>.slurm, next to the run folder; holds script, config, output and keys.
  std::string folder;
  std::string script;  // text of job.sh
  std::string config;  // text of train.toml
};
// Builds the script and the config; writes no files. program: path of troop on the nodes.
SlurmSubmission MakeSubmission(const Config& config, const std::string& program,
                               const TrainOptions& options);

// `troop train|resume --engine slurm`: submits the job, or only prints its files (dry_run). Returns
// the exit code of the submission; does not wait for the job.
int SubmitSlurm(const Config& config, const TrainOptions& options);

// Options of the internal command `troop slurm-job`.
struct SlurmJobOptions {
  std::string config;  // path of the submission's train.toml
  TrainOptions train;
};
// Runs the launcher on the job's first node, which starts the roles as job steps. A requeued job
// resumes from the newest checkpoint, or starts over if there is none. Blocks until the run ends.
// Returns the exit code.
int RunSlurmJob(const SlurmJobOptions& options);

// Sets security.keys to `folder`, so that roles on other machines can authenticate, and generates
// the keys there unless it has them. The folder has mode 0700. No effect if security.keys or
// security.insecure is set. Errors: the keys cannot be written.
Status GiveKeys(Config* config, const std::string& folder);

}  // namespace troop
