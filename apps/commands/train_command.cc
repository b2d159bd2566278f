// Implements `troop train` and `troop resume`: their flags, and the choice of the engine.
#include "apps/commands/train_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/cluster/kubernetes_manifests.h"
#include "apps/cluster/mpi_launcher.h"
#include "apps/cluster/slurm_submit.h"
#include "apps/launch/train.h"
#include "fleet/launcher/error_line.h"
#include "fleet/launcher/exit_code.h"
#include "fleet/run/run_budget.h"
#include "fleet/run/run_directory.h"
#include "fleet/run/run_status.h"

namespace troop {
namespace {

// Starts a training run with the engine of fleet.engine. local: trains on this machine (Train).
// mpi: this process is one rank of an mpirun launch (TrainMpi). Both block until the run ends.
// slurm: submits a job. kubernetes: writes manifests. Returns the exit code; messages are printed
// to standard output and standard error.
int TrainOnEngine(const Config& config, const TrainOptions& options) {
  switch (config.fleet.engine) {
    case LaunchEngine::kLocal:
      return Train(config, options);
    case LaunchEngine::kSlurm:
      return SubmitSlurm(config, options);
    case LaunchEngine::kMpi:
      return TrainMpi(config, options);
    case LaunchEngine::kKubernetes:
      return WriteForKubernetes(config, options);
  }
  TROOP_CHECK(false, "fleet.engine {}", int(config.fleet.engine));
}

// Exit code of a status, after its message was printed.
int ReportError(const Status& status) {
  fmt::print(stderr, "troop: {}\n", status.message());
  return ExitCodeFor(status);
}

// Flags of train and resume.
struct TrainArguments {
  std::string config;  // config file, or for resume the run folder
  std::vector<std::string> overrides;
  bool insecure = false;
  bool continues = false;  // train: --continue
  std::string engine;      // empty: fleet.engine
  TrainOptions options;
};

// `--engine` becomes a fleet.engine override, so that it is validated like the others.
std::vector<std::string> OverridesOf(const TrainArguments& a) {
  std::vector<std::string> overrides = a.overrides;
  if (!a.engine.empty()) overrides.push_back("fleet.engine=" + a.engine);
  return overrides;
}

int RunResume(TrainArguments a);

// `train --continue`: starts or resumes the run, so repeating one command completes it.
int ContinueRun(TrainArguments a, const Config& config) {
  const std::string path = RunPath(config);
  const Result<RunStatus> standing = GetRunStatus(path);
  if (!standing.ok()) return ReportError(standing.status());
  a.options.overwrite = true;  // a run without a checkpoint is discarded
  if (*standing == RunStatus::kNew) return TrainOnEngine(config, a.options);
  const Result<Config> was = ReadRunConfig(path, {});
  if (!was.ok()) return ReportError(was.status());
  // A raised step, update or epoch budget extends the run; other changes of the config file do not
  // apply to a resumed run.
  for (std::string& key : LargerBudget(config, *was)) a.overrides.push_back(std::move(key));
  a.config = path;
  return RunResume(a);
}

// --continue takes effect only for the local engine.
int RunTrain(const TrainArguments& a) {
  Result<Config> config = LoadConfigFile(a.config, OverridesOf(a));
  if (!config.ok()) {
    PrintError(config.status());
    return kExitUsage;
  }
  ApplySecurity(a.insecure, &*config);
  if (a.continues && config->fleet.engine == LaunchEngine::kLocal) return ContinueRun(a, *config);
  return TrainOnEngine(*config, a.options);
}

int RunResume(TrainArguments a) {
  Result<Config> config = ReadRunConfig(a.config, OverridesOf(a));
  if (!config.ok()) return ReportError(config.status());
  ApplySecurity(a.insecure, &*config);
  // Checked before the folder is opened for writing, so a finished run stays as it is.
  const Result<bool> spent = IsSpent(a.config, *config);
  if (!spent.ok()) return ReportError(spent.status());
  if (*spent) {
    fmt::print("{}\n", SpentNotice(*config));
    return kExitOk;
  }
  a.options.resume = true;
  return TrainOnEngine(*config, a.options);
}

// The flags that train and resume share.
void AddTrainFlags(CLI::App* command, TrainArguments* a) {
  command->add_option("overrides", a->overrides, kOverridesHelp);
  command->add_flag("--plain", a->options.plain, "print plain lines instead of a live display");
  command->add_option("--engine", a->engine,
                      "process launcher: local, slurm, mpi, kubernetes (fleet.engine)");
  command->add_flag("--insecure", a->insecure, kInsecureHelp);
}

}  // namespace

void ApplySecurity(bool insecure, Config* config) {
  config->security.insecure |= insecure;
  for (std::string* path : {&config->security.keys, &config->fleet.metrics_token}) {
    if (!path->empty()) *path = std::filesystem::absolute(*path).lexically_normal().string();
  }
}

void RegisterTrain(CLI::App& app, ChosenCommand* chosen) {
  const auto arguments = std::make_shared<TrainArguments>();
  CLI::App* train = app.add_subcommand("train", "train a config: start its fleet");
  train->add_option("config", arguments->config, "TOML file, such as configs/apex_cartpole.toml")
      ->required();
  AddTrainFlags(train, arguments.get());
  train->add_flag("--dry-run", arguments->options.dry_run,
                  "print topology, endpoints and memory, and start nothing");
  train->add_flag("--overwrite", arguments->options.overwrite, "replace a run of the same name");
  train->add_flag("--continue", arguments->continues,
                  "resume the run of the same name, or start it if it does not exist; exit with 0 "
                  "if it has finished");
  train->callback([arguments, chosen] { *chosen = [arguments] { return RunTrain(*arguments); }; });
}

void RegisterResume(CLI::App& app, ChosenCommand* chosen) {
  const auto arguments = std::make_shared<TrainArguments>();
  CLI::App* resume = app.add_subcommand("resume", "resume a run from its newest checkpoint");
  resume->add_option("run", arguments->config, "run folder")->required();
  AddTrainFlags(resume, arguments.get());
  resume->callback(
      [arguments, chosen] { *chosen = [arguments] { return RunResume(*arguments); }; });
}

}  // namespace troop
