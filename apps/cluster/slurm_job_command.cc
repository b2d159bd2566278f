// The flags of the internal command `troop slurm-job`.
#include "apps/cluster/slurm_job_command.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "apps/cluster/slurm_submit.h"

namespace troop {

// An empty group hides the command from --help.
void RegisterSlurmJob(CLI::App& app, ChosenCommand* chosen) {
  const auto options = std::make_shared<SlurmJobOptions>();
  CLI::App* job = app.add_subcommand("slurm-job", "run the launcher inside a Slurm job");
  job->group("");
  job->add_option("config", options->config, "train.toml of the submission")->required();
  job->add_flag("--overwrite", options->train.overwrite, "replace a run of the same name");
  job->add_flag("--resume", options->train.resume, "resume the run");
  job->callback([options, chosen] { *chosen = [options] { return RunSlurmJob(*options); }; });
}

}  // namespace troop
