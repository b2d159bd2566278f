// The `troop` command line: all subcommands and their flags.
#include "apps/commands/cli.h"

#include <signal.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "apps/cluster/slurm_submit.h"
#include "apps/commands/command_hint.h"
#include "apps/commands/config_command.h"
#include "apps/commands/eval_command.h"
#include "apps/commands/join_command.h"
#include "apps/commands/keygen_command.h"
#include "apps/commands/literal_arguments.h"
#include "apps/commands/plot_command.h"
#include "apps/commands/predict_command.h"
#include "apps/commands/replay_command.h"
#include "apps/commands/role_command.h"
#include "apps/commands/scale_command.h"
#include "apps/commands/status_command.h"
#include "apps/commands/tokenize_command.h"
#include "apps/commands/train_command.h"
#include "apps/doctor/doctor_command.h"
#include "apps/envtools/env_command.h"
#include "apps/experiments/experiment_command.h"
#include "apps/monitor/dashboard_server.h"
#include "apps/planner/plan_command.h"
#include "apps/selfcheck/sync_check.h"
#include "apps/sweep/sweep_runner.h"
#include "core/base/phase_progress.h"
#include "core/base/version.h"
#include "core/config/key_hint.h"
#include "envs/subprocess/worker_main.h"
#include "fleet/launcher/error_line.h"
#include "fleet/launcher/exit_code.h"
#include "fleet/launcher/health_file.h"
#include "fleet/run/run_budget.h"
#include "fleet/run/run_directory.h"
#include "fleet/run/run_status.h"

namespace troop {
namespace {

// Exit code of a status, after its message was printed.
int ReportError(const Status& status) {
  fmt::print(stderr, "troop: {}\n", status.message());
  return ExitCodeFor(status);
}

// Flags of train, resume and replay, whose first argument is a config file or a run folder.
struct TrainArguments {
  std::string config;
  std::vector<std::string> overrides;
  bool insecure = false;
  bool go_on = false;
  std::string engine;  // empty: fleet.engine
  TrainOptions options;
};

// `--engine` becomes a fleet.engine override, so that it is validated like the others.
std::vector<std::string> OverridesOf(const TrainArguments& a) {
  std::vector<std::string> overrides = a.overrides;
  if (!a.engine.empty()) overrides.push_back("fleet.engine=" + a.engine);
  return overrides;
}

// Applies flags that are not overrides, and makes paths absolute.
void ApplyFlags(const TrainArguments& a, Config* config) {
  config->security.insecure |= a.insecure;
  // Roles and later commands may run in other working directories.
  for (std::string* path : {&config->security.keys, &config->fleet.metrics_token}) {
    if (!path->empty()) *path = std::filesystem::absolute(*path).lexically_normal().string();
  }
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
  ApplyFlags(a, &*config);
  if (a.go_on && config->fleet.engine == "local") return ContinueRun(a, *config);
  return TrainOnEngine(*config, a.options);
}

int RunResume(TrainArguments a) {
  Result<Config> config = ReadRunConfig(a.config, OverridesOf(a));
  if (!config.ok()) return ReportError(config.status());
  ApplyFlags(a, &*config);
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

// `troop replay`: a standalone server needs the config's tables, but no run folder.
int RunReplay(const TrainArguments& a) {
  Result<Config> config = LoadConfigFile(a.config, a.overrides);
  if (!config.ok()) {
    PrintError(config.status());
    return kExitUsage;
  }
  ApplyFlags(a, &*config);
  return ServeReplay(*config);
}

// The flags that train and resume share.
void AddTrainFlags(CLI::App* command, TrainArguments* a) {
  command->add_option("overrides", a->overrides, "config overrides, key=value (troop config)");
  command->add_flag("--plain", a->options.plain, "print plain lines instead of a live display");
  command->add_option("--engine", a->engine,
                      "process launcher: local, slurm, mpi, kubernetes (fleet.engine)");
}

// The options of all subcommands. Each subcommand's callback sets `chosen` to its function.
struct Arguments {
  TrainArguments train;
  RoleArguments role;
  ConfigArguments config;
  MigrateArguments migrate;
  EvalOptions show;
  StatusOptions status;
  EnvCommandOptions env;
  CheckSyncCommand sync;
  ScaleOptions scale;
  JoinOptions join;
  DoctorOptions doctor;
  HealthOptions health;
  KeygenOptions keygen;
  SlurmJobOptions slurm_job;
  SweepOptions sweep;
  PlotOptions plot;
  TokenizeOptions tokenize;
  PlanArguments plan;
  ParallelOptions parallel;
  PredictOptions predict;
  DashboardCommand dashboard;
};

// sweep and plot: plot reads the folders that sweep writes.
void AddSweepCommands(CLI::App* app, Arguments* a, std::function<int()>* chosen) {
  CLI::App* sweep = app->add_subcommand(
      "sweep",
      "train a config with all combinations of seeds and values; write a table and a plot");
  SweepArguments& runs = a->sweep.arguments;
  sweep->add_option("config", runs.config, "TOML file")->required();
  sweep->add_option("overrides", runs.overrides,
                    "override config keys: key=value, or key=a,b,c for one run per value");
  sweep->add_option("--seeds", runs.seeds, "seeds per combination (5)")->check(CLI::Range(1, 1000));
  sweep->add_option("--first-seed", runs.first_seed, "first seed (1)")
      ->check(CLI::NonNegativeNumber);
  sweep
      ->add_option("--jobs", a->sweep.jobs,
                   "number of concurrent runs (default: as many as the cores allow)")
      ->check(CLI::Range(1, 1000));
  sweep->add_flag("--overwrite", a->sweep.overwrite, "restart all runs");
  sweep->add_flag("--dry-run", a->sweep.dry_run, "print the runs and their state, and start none");
  // A callback only chooses the command, which runs after parsing (see RunCommand).
  sweep->callback([a, chosen] { *chosen = [a] { return Sweep(a->sweep); }; });
  CLI::App* plot = app->add_subcommand("plot", "plot learning curves of runs and sweeps");
  plot->add_option("runs", a->plot.paths, "run folders or sweep folders")->required();
  plot->add_option("--out,--png", a->plot.out, "output file, .png or .svg (curves.png)");
  plot->add_option("--title", a->plot.title, "plot title (default: the environment)");
  plot->add_option("--x", a->plot.axis, "x axis: steps, updates or minutes (steps)");
  plot->callback([a, chosen] { *chosen = [a] { return PlotRuns(a->plot); }; });
}

// Commands on an existing run or checkpoint: eval, play, status, scale.
void AddShowCommands(CLI::App* app, Arguments* a, std::function<int()>* chosen) {
  CLI::App* eval =
      app->add_subcommand("eval", "evaluate a checkpoint (episode return, or accuracy)");
  CLI::App* play = app->add_subcommand("play",
                                       "render episodes of a checkpoint, in the terminal or to "
                                       "a file");
  // The flags that eval and play have in common; both fill one options struct.
  for (CLI::App* command : {eval, play}) {
    command
        ->add_option("checkpoint", a->show.path,
                     "run folder (newest checkpoint), or checkpoint folder")
        ->required();
    command->add_option("--episodes", a->show.episodes,
                        "episodes or reviews (eval: 100, or all test reviews; play: 1)");
    command->add_option("--epsilon", a->show.epsilon,
                        "probability of a random action (evaluator.epsilon)");
    command->add_option("--seed", a->show.seed, "seed of the episodes (default: seed of the run)");
  }
  eval->add_flag("--json", a->show.json, "print one line of JSON");
  eval->callback([a, chosen] { *chosen = [a] { return Evaluate(a->show); }; });
  play->add_option("--gif", a->show.gif, "write an animated GIF to this file");
  play->add_option("--png", a->show.png, "write a strip of frames to this file");
  play->add_option("--fps", a->show.frames_per_s, "frames per second (30)");
  play->callback([a, chosen] { *chosen = [a] { return Play(a->show); }; });
  CLI::App* status = app->add_subcommand("status", "show the state of a run, or how it ended");
  status->add_option("run", a->status.run, "run folder, or tcp://HOST:PORT of its coordinator")
      ->required();
  status->add_flag("--json", a->status.json, "print JSON");
  status->add_option("--key", a->status.key,
                     "key file of the role `tool`, for tcp:// (troop keygen)");
  status->callback([a, chosen] { *chosen = [a] { return ShowStatus(a->status); }; });
  CLI::App* scale = app->add_subcommand("scale",
                                        "change the number of actors, replay shards, learners or "
                                        "parameter shards of a running fleet");
  scale->add_option("run", a->scale.run, "run folder")->required();
  scale
      ->add_option(
          "count", a->scale.what,
          "new number of roles of one kind: actors=N, replay=N, learners=N or paramserver=N")
      ->required();
  scale->callback([a, chosen] { *chosen = [a] { return Scale(a->scale); }; });
}

void AddEnvCheck(CLI::App* check, EnvCommandOptions* env, std::function<int()>* chosen) {
  check->add_option("id", env->id, "environment id, or a config file")->required();
  check->add_option("overrides", env->overrides, "config overrides, key=value (troop config)");
  check->add_option("--plugin", env->plugin, "shared library that contains the environment");
  check->add_flag("--quick", env->quick, "run a quick check: seconds instead of a minute");
  check->callback([env, chosen] { *chosen = [env] { return TryEnvironment(*env); }; });
}

// Called for `env bench` and for `bench env`.
void AddEnvBench(CLI::App* bench, EnvCommandOptions* env, std::function<int()>* chosen) {
  bench->add_option("id", env->id, "environment id, or a config file")->required();
  bench->add_option("overrides", env->overrides, "config overrides, key=value (troop config)");
  bench->add_option("--plugin", env->plugin, "shared library that contains the environment");
  bench->add_option("--envs", env->envs, "environments stepped together (8)")
      ->check(CLI::Range(1, 65536));
  bench->add_option("--seconds", env->seconds, "seconds to run (2)")
      ->check(CLI::Range(0.01, 3600.0));
  bench->callback([env, chosen] { *chosen = [env] { return BenchEnvironment(*env); }; });
}

// The env group, and its commands under other names at the top level.
void AddEnvCommands(CLI::App* app, EnvCommandOptions* env, std::function<int()>* chosen) {
  const std::string what = "check an environment and suggest fixes";
  CLI::App* group = app->add_subcommand("env", "list, create, check and benchmark environments");
  group->require_subcommand(1);
  CLI::App* list = group->add_subcommand("list", "list environments and id formats");
  list->add_option("--plugin", env->plugin, "list the environments of a shared library");
  list->callback([env, chosen] { *chosen = [env] { return ListEnvironments(*env); }; });
  CLI::App* make = group->add_subcommand("new", "create an example environment in a new folder");
  make->add_option("name", env->name, "folder and environment name, such as my_env")->required();
  make->add_option("--language", env->language, "language: c, c++ (default) or python");
  make->callback([env, chosen] { *chosen = [env] { return NewEnvironment(*env); }; });
  AddEnvCheck(group->add_subcommand("check", what), env, chosen);
  const std::string speed =
      "measure an environment's steps/s and the overhead of its separate process";
  AddEnvBench(group->add_subcommand("bench", speed), env, chosen);
  CLI::App* bench = app->add_subcommand("bench", "benchmark parts of a run on this machine");
  // A group without a command is an error, and its help lists the commands.
  bench->require_subcommand(1);
  AddEnvBench(bench->add_subcommand("env", speed), env, chosen);
}

// `troop selftest sync`; the group leaves room for checks of other components.
void AddCheck(CLI::App* app, CheckSyncCommand* a, std::function<int()>* chosen) {
  CLI::App* group =
      app->add_subcommand("selftest", "compare components with fp64 reference implementations");
  group->require_subcommand(1);
  CLI::App* sync = group->add_subcommand(
      "sync", "check every gradient-sync mode against an fp64 reference; exit 1 on mismatch");
  sync->add_option("--mode", a->mode, "check one mode, tensor by tensor (see --list)");
  sync->add_option("--seed", a->seed, "seed of the values and the message order (1)");
  sync->add_flag("--list", a->list, "print only the mode names");
  sync->add_flag("--json", a->json, "print one line of JSON per case");
  sync->callback([a, chosen] { *chosen = [a] { return RunCheckSync(*a); }; });
}

// Texts may begin with a bracket, which CLI11 would split into a list (literal_arguments.h).
void AddTokenize(CLI::App* app, TokenizeOptions* a, std::function<int()>* chosen) {
  CLI::App* tokenize = app->add_subcommand("tokenize", "tokenize text");
  tokenize->add_option("text", a->texts,
                       "texts to tokenize (default: each line of standard input)");
  tokenize
      ->add_option("--vocab", a->vocabulary,
                   "vocab.txt (BERT, one piece per line) or SentencePiece .model (ALBERT)")
      ->required();
  tokenize->add_flag("--cased", a->cased, "keep capitals and accents, for a cased vocabulary");
  tokenize->add_flag("--json", a->json, "print one line of JSON per text");
  tokenize->callback([a, chosen] {
    UnescapeAllBrackets(&a->texts);
    *chosen = [a] { return Tokenize(*a); };
  });
}

// Paths and texts may contain brackets, as for tokenize.
void AddPredict(CLI::App* app, PredictOptions* a, std::function<int()>* chosen) {
  CLI::App* predict = app->add_subcommand("predict", "classify texts with a trained model");
  predict
      ->add_option("checkpoint", a->path,
                   "run folder (newest checkpoint), checkpoint folder, or a folder of Hugging "
                   "Face files with the vocabulary")
      ->required();
  predict->add_option("text", a->texts, "texts to classify (default: each line of standard input)");
  predict->add_flag("--json", a->json, "print one line of JSON per text");
  predict->callback([a, chosen] {
    UnescapeBrackets(&a->path);
    UnescapeAllBrackets(&a->texts);
    *chosen = [a] { return Predict(*a); };
  });
}

// A dashboard of several runs; a single run can also serve its own (fleet.dashboard).
void AddDashboard(CLI::App* app, DashboardCommand* a, std::function<int()>* chosen) {
  CLI::App* dashboard = app->add_subcommand("dashboard", "serve a web page that shows runs live");
  dashboard->add_option("runs", a->runs, "run folders, or folders that contain runs")->required();
  dashboard->add_option("--listen", a->address,
                        "HOST:PORT to listen on (127.0.0.1:8800); port 0 selects a free one");
  dashboard->add_option(
      "--token-file", a->token_file,
      "file with the access token, on one line; required to serve other machines");
  dashboard->add_flag("--insecure", a->insecure, "serve without authentication");
  dashboard->callback([a, chosen] { *chosen = [a] { return ServeDashboard(*a); }; });
}

// One text for all commands with --insecure.
constexpr char kInsecureHelp[] = "accept unencrypted connections from other machines, without keys";

// Commands for fleets on several machines: join, doctor, health, keygen.
void AddFleetCommands(CLI::App* app, Arguments* a, std::function<int()>* chosen) {
  CLI::App* join =
      app->add_subcommand("join", "run roles on this machine for a run on another machine");
  join->add_option("coordinator", a->join.coordinator,
                   "address of the coordinator, tcp://HOST:PORT (fleet.listen of the run)")
      ->required();
  join->add_option("--role", a->join.role,
                   "role to run: actor, or an external role of the run (fleet.external_roles)");
  join->add_option("--advertise-host", a->join.advertise_host,
                   "address at which the fleet reaches this machine");
  join->add_option("--count", a->join.count, "number of processes (1)")
      ->check(CLI::Range(1, 10000));
  join->add_option("--key", a->join.key, "key file of that role (troop keygen)");
  join->add_option("--logs", a->join.logs, "log folder (default: a temporary one)");
  join->add_option("--wait", a->join.wait_s, "seconds to wait for the coordinator to appear (60)")
      ->check(CLI::Range(0.0, 86400.0));
  join->add_flag("--rejoin", a->join.rejoin,
                 "wait while the run is stopped, and rejoin when it is resumed");
  join->add_option("--health", a->join.health, "status file to write, for `troop health`");
  join->callback([a, chosen] { *chosen = [a] { return Join(a->join); }; });
  CLI::App* doctor = app->add_subcommand(
      "doctor", "check the machine, a config and a coordinator before a run, and suggest fixes");
  doctor->add_option("config", a->doctor.config, "TOML file (none: check only the machine)");
  doctor->add_option("overrides", a->doctor.overrides,
                     "config overrides, key=value (troop config)");
  doctor->add_option("--coordinator", a->doctor.coordinator, "tcp://HOST:PORT of a run to join");
  doctor->add_option("--key", a->doctor.key, "key file for the coordinator (troop keygen)");
  doctor->add_flag("--insecure", a->doctor.insecure, kInsecureHelp);
  doctor->callback([a, chosen] { *chosen = [a] { return Doctor(a->doctor); }; });
  CLI::App* health =
      app->add_subcommand("health", "report whether a `troop join` on this machine works");
  health->add_option("file", a->health.file, "status file that `troop join --health` writes")
      ->required();
  health->add_flag("--ready", a->health.ready,
                   "also require that all of its roles have joined the run");
  health->callback([a, chosen] { *chosen = [a] { return ShowHealth(a->health); }; });
  CLI::App* keygen = app->add_subcommand("keygen", "generate keys, one per role or user");
  keygen->add_option("folder", a->keygen.folder, "output folder")->required();
  keygen->add_option("--role", a->keygen.role,
                     "generate one key of this role (default: one key per role)");
  keygen->add_option("--name", a->keygen.name,
                     "name of the key, such as a user name (default: the role)");
  keygen->add_flag("--rotate", a->keygen.rotate,
                   "replace existing keys; old ones stay valid until the next rotation");
  keygen->callback([a, chosen] { *chosen = [a] { return Keygen(a->keygen); }; });
}

// All subcommands. A new visible command also needs its group in GroupCommands.
void AddCommands(CLI::App* app, Arguments* a, std::function<int()>* chosen) {
  CLI::App* train = app->add_subcommand("train", "train a config: start its fleet");
  train->add_option("config", a->train.config, "TOML file, such as configs/apex_cartpole.toml")
      ->required();
  AddTrainFlags(train, &a->train);
  train->add_flag("--insecure", a->train.insecure, kInsecureHelp);
  train->add_flag("--dry-run", a->train.options.dry_run,
                  "print topology, endpoints and memory, and start nothing");
  train->add_flag("--overwrite", a->train.options.overwrite, "replace a run of the same name");
  train->add_flag("--continue", a->train.go_on,
                  "resume the run of the same name, or start it if it does not exist; exit with 0 "
                  "if it has finished");
  train->callback([a, chosen] { *chosen = [a] { return RunTrain(a->train); }; });
  CLI::App* resume = app->add_subcommand("resume", "resume a run from its newest checkpoint");
  resume->add_option("run", a->train.config, "run folder")->required();
  AddTrainFlags(resume, &a->train);
  resume->add_flag("--insecure", a->train.insecure, kInsecureHelp);
  resume->callback([a, chosen] { *chosen = [a] { return RunResume(a->train); }; });
  AddShowCommands(app, a, chosen);
  AddFleetCommands(app, a, chosen);
  AddSweepCommands(app, a, chosen);
  AddEnvCommands(app, &a->env, chosen);
  AddCheck(app, &a->sync, chosen);
  AddTokenize(app, &a->tokenize, chosen);
  AddPredict(app, &a->predict, chosen);
  AddDashboard(app, &a->dashboard, chosen);
  AddPlan(app, &a->plan, chosen);
  AddExperiment(app, &a->parallel, chosen);
  CLI::App* replay =
      app->add_subcommand("replay", "serve a standalone replay until SIGTERM or Ctrl-C");
  replay->add_option("config", a->train.config, "TOML file: replay.tables, replay.listen")
      ->required();
  replay->add_option("overrides", a->train.overrides, "config overrides, key=value (troop config)");
  replay->add_flag("--insecure", a->train.insecure, kInsecureHelp);
  replay->callback([a, chosen] { *chosen = [a] { return RunReplay(a->train); }; });
  CLI::App* role = app->add_subcommand("role", "run a single role of a fleet");
  role->add_option("role", a->role.role,
                   "actor, replay, learner, paramserver, evaluator, inference")
      ->required();
  role->add_option("--index", a->role.index, "index of the role (0)");
  role->add_option("--heartbeat-timeout", a->role.heartbeat_timeout_s,
                   "value of the run's fleet.heartbeat_timeout_s, in seconds (1.5)")
      ->check(CLI::Range(0.1, 3600.0));
  role->add_option("--coordinator", a->role.coordinator, "coordinator endpoint")->required();
  role->add_flag("--auto-index", a->role.auto_index, "let the coordinator assign the index");
  role->add_flag("--rejoin", a->role.rejoin,
                 "exit with 130 if the run stops before its end, so that the role can rejoin");
  role->add_option("--advertise-host", a->role.advertise_host,
                   "address at which the fleet reaches this machine");
  role->add_option("--key", a->role.key, "key file of this role (troop keygen)");
  role->add_flag("--insecure", a->role.insecure, kInsecureHelp);
  role->callback([a, chosen] { *chosen = [a] { return RunRole(a->role); }; });
  CLI::App* config = app->add_subcommand("config", "describe the config keys");
  config->add_option("key", a->config.key, "describe only this key");
  config->add_option("--check", a->config.check, "parse a file and print the resolved config");
  config->add_flag("--markdown", a->config.markdown,
                   "print all keys as Markdown (docs/reference/config.md)");
  config->add_flag("--keys", a->config.keys, "print only the key names");
  config->footer(ConfigHelp);
  config->callback([a, chosen] {
    // CLI11 also calls this for `config migrate`, whose own choice must stay.
    if (!*chosen) *chosen = [a] { return RunConfig(a->config); };
  });
  CLI::App* migrate = config->add_subcommand(
      "migrate", "convert a config file of an older version to the current version, in place");
  migrate->add_option("file", a->migrate.file, "TOML file")->required();
  migrate->add_flag("--dry-run", a->migrate.dry_run, "print the changes, write nothing");
  migrate->callback([a, chosen] { *chosen = [a] { return RunMigrate(a->migrate); }; });
  // Internal commands: an empty group hides them from --help.
  CLI::App* job = app->add_subcommand("slurm-job", "run the launcher inside a Slurm job");
  job->group("");
  job->add_option("config", a->slurm_job.config, "train.toml of the submission")->required();
  job->add_flag("--overwrite", a->slurm_job.train.overwrite, "replace a run of the same name");
  job->add_flag("--resume", a->slurm_job.train.resume, "resume the run");
  job->callback([a, chosen] { *chosen = [a] { return RunSlurmJob(a->slurm_job); }; });
  CLI::App* worker = app->add_subcommand("env-worker", "run environments for another process");
  worker->group("");
  worker->callback([chosen] { *chosen = RunEnvWorker; });
}

}  // namespace

// Parses the command line, then runs the command. The command runs outside the try block, so that
// only parse errors are explained as such.
int RunCommand(int argc, char** argv) {
  // Exceeding the file size limit (ulimit -f) must fail the write, as a full disk does.
  signal(SIGXFSZ, SIG_IGN);
  // Progress of long phases goes to standard error, since standard output holds results.
  SetPhaseSink([](const std::string& line) { fmt::print(stderr, "troop: {}\n", line); });
  CLI::App app(
      "Troop trains agents with a fleet of actors, a prioritized replay buffer and learners.\n"
      "Exit codes: 0 done, 1 failed, 2 bad command line or config, 3 run folder or port in use,\n"
      "4 damaged file, 5 a role failed in a way that a restart cannot fix (`troop role` and\n"
      "`troop join` only), 130 interrupted (resumable).");
  app.set_version_flag("--version", kTroopVersion);
  app.require_subcommand(1);
  // Outlives the command: callbacks and the command hold pointers into it.
  Arguments arguments;
  std::function<int()> chosen;
  AddCommands(&app, &arguments, &chosen);
  GroupCommands(&app);
  const std::vector<std::string> words = EscapeBrackets(argc, argv);
  // CLI11 reports errors, --help and --version by exceptions; none leaves this function.
  try {
    // CLI11 takes argv only; `words` owns the strings while it parses.
    std::vector<const char*> pointers;
    for (const std::string& word : words) pointers.push_back(word.c_str());
    app.parse(argc, pointers.data());
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    PrintError(ExplainUsageError(app, words, error.what()));
    return kExitUsage;
  }
  return chosen();
}

}  // namespace troop
