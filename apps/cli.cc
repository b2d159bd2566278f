#include "apps/cli.h"

#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>

#include "apps/check_sync.h"
#include "apps/command_hint.h"
#include "apps/dashboard_command.h"
#include "apps/doctor.h"
#include "apps/endpoints.h"
#include "apps/env_command.h"
#include "apps/error_line.h"
#include "apps/experiment_flags.h"
#include "apps/guarded_texts.h"
#include "apps/health.h"
#include "apps/host.h"
#include "apps/join_command.h"
#include "apps/keygen_command.h"
#include "apps/machine.h"
#include "apps/plan_flags.h"
#include "apps/plot_command.h"
#include "apps/predict.h"
#include "apps/replay_command.h"
#include "apps/role_node.h"
#include "apps/run_budget.h"
#include "apps/run_folder.h"
#include "apps/scale_command.h"
#include "apps/show.h"
#include "apps/slurm_command.h"
#include "apps/standing.h"
#include "apps/status_command.h"
#include "apps/sweep.h"
#include "apps/tokenize.h"
#include "apps/train.h"
#include "core/config_hint.h"
#include "core/heap.h"
#include "core/log.h"
#include "core/phase_progress.h"
#include "core/version.h"
#include "envs/worker_loop.h"

namespace troop {
namespace {

int Complain(const Status& status) {
  fmt::print(stderr, "troop: {}\n", status.message());
  return ExitCodeFor(status);
}

struct TrainArguments {
  std::string config;
  std::vector<std::string> overrides;
  bool insecure = false;
  bool go_on = false;
  std::string engine;  // empty: as fleet.engine has it
  TrainOptions options;
};

// `--engine` is an override like others, and is checked with them.
std::vector<std::string> OverridesOf(const TrainArguments& a) {
  std::vector<std::string> overrides = a.overrides;
  if (!a.engine.empty()) overrides.push_back("fleet.engine=" + a.engine);
  return overrides;
}

// What the command line adds to a config.
void Complete(const TrainArguments& a, Config* config) {
  config->security.insecure |= a.insecure;
  // Roles and later commands may work in other folders.
  for (std::string* path : {&config->security.keys, &config->fleet.metrics_token}) {
    if (!path->empty()) *path = std::filesystem::absolute(*path).lexically_normal().string();
  }
}

int RunResume(TrainArguments a);

// `train --continue`: the same command again and again, until the run is done.
int GoOn(TrainArguments a, const Config& config) {
  const std::string path = RunPath(config);
  const Result<Standing> standing = StandingOf(path);
  if (!standing.ok()) return Complain(standing.status());
  a.options.overwrite = true;  // what never got to a checkpoint goes
  if (*standing == Standing::kNew) return Train(config, a.options);
  const Result<Config> was = ReadRunConfig(path, {});
  if (!was.ok()) return Complain(was.status());
  for (std::string& key : LargerBudget(config, *was)) a.overrides.push_back(std::move(key));
  a.config = path;
  return RunResume(a);
}

int RunTrain(const TrainArguments& a) {
  Result<Config> config = LoadConfigFile(a.config, OverridesOf(a));
  if (!config.ok()) {
    PrintError(config.status());
    return kExitUsage;
  }
  Complete(a, &*config);
  if (a.go_on && config->fleet.engine == "local") return GoOn(a, *config);
  return Train(*config, a.options);
}

int RunResume(TrainArguments a) {
  Result<Config> config = ReadRunConfig(a.config, OverridesOf(a));
  if (!config.ok()) return Complain(config.status());
  Complete(a, &*config);
  const Result<bool> spent = IsSpent(a.config, *config);
  if (!spent.ok()) return Complain(spent.status());
  if (*spent) {
    fmt::print("{}\n", SpentNotice(*config));
    return kExitOk;
  }
  a.options.resume = true;
  return Train(*config, a.options);
}

int RunReplay(const TrainArguments& a) {
  Result<Config> config = LoadConfigFile(a.config, a.overrides);
  if (!config.ok()) {
    PrintError(config.status());
    return kExitUsage;
  }
  Complete(a, &*config);
  return ServeReplay(*config);
}

struct RoleArguments {
  std::string role, coordinator;
  std::int32_t index = 0;
  bool any_index = false;
  bool stay = false;
  double dead_after_s = 1.5;
  std::string key;
  bool insecure = false;
  std::string reach;
};

// Errors: kNotFound: a role from elsewhere that keeps files in the run's folder, which is not here.
Result<std::unique_ptr<Storage>> OpenRunOf(const RoleArguments& a, const Config& config) {
  const std::string path = RunPath(config);
  if (a.any_index && !std::filesystem::exists(path)) {
    return NotFound(
        "the run's folder {} is not on this machine, and the role {} keeps files there: share it "
        "with the run's machine, under the same path",
        path, a.role);
  }
  return MakeDiskStorage(path);
}

int RunRole(const RoleArguments& a) {
  Role role = Role::kNone;
  for (const Role r : {Role::kActor, Role::kReplay, Role::kLearner, Role::kParamServer,
                       Role::kEvaluator, Role::kInference}) {
    if (RoleName(r) == a.role) role = r;
  }
  if (role == Role::kNone) {
    return Complain(
        InvalidArgument("no role is called {}; roles: actor, replay, learner, "
                        "paramserver, evaluator, inference",
                        a.role));
  }
  if (role == Role::kLearner || role == Role::kParamServer) KeepFreedMemory();
  InitLog({.role = PeerName(role, a.index)});
  std::shared_ptr<const KeyRing> keys;
  if (!a.key.empty()) {
    const auto loaded = KeysFromFile(a.key, role);
    if (!loaded.ok()) {
      LogError("{}", loaded.status().message());
      return kExitUsage;
    }
    keys = *loaded;
  }
  Result<std::unique_ptr<Network>> network =
      MakeZmqNetwork({.dead_after = Seconds(a.dead_after_s),
                      .heartbeat_every = Seconds(a.dead_after_s / 3),
                      .clients_max = 1 << 15,  // every actor draws weights from one server
                      .keys = keys,
                      .insecure = a.insecure});
  if (!network.ok()) return Complain(network.status());
  // A replay's training of a dictionary must not hold up what waits for its disk.
  const int threads = role == Role::kReplay ? 2 : 1;
  auto executor = std::make_unique<ThreadExecutor>(threads, [n = network->get()] { n->Wake(); });
  std::unique_ptr<Storage> storage;
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  RoleNode node({.role = role,
                 .index = a.any_index ? -1 : a.index,
                 .reach = a.reach,
                 .coordinator = a.coordinator,
                 .host = host,
                 .process = getpid(),
                 .attempt = std::uint64_t(1e6 * WallSeconds()),
                 .network = network->get(),
                 .executor = executor.get(),
                 .storage = [&storage, &a](const Config& config) -> Result<Storage*> {
                   TROOP_ASSIGN_OR_RETURN(storage, OpenRunOf(a, config));
                   return storage.get();
                 },
                 .joined =
                     [role](const Config& config, std::int32_t index) {
                       InitLog({.role = PeerName(role, index), .level = LogLevelOf(config)});
                       SetPhaseSink([](const std::string& line) { LogInfo("{}", line); });
                       SetProcessName(PeerName(role, index));
                     }});
  const SignalWatch signals(network->get(), true);
  const SystemClock clock;
  const Status status = RunNode(&node, network->get(), clock, [&](Time) {
    if (signals.count() > 0) node.Drain();
  });
  executor.reset();  // jobs under way work on what the node owns
  if (status.ok() && a.stay && node.sent_away() && signals.count() == 0) {
    LogInfo("the run was stopped; it may go on");
    return kExitInterrupted;
  }
  if (status.ok()) return kExitOk;
  if (a.any_index && !a.stay && node.unanswered()) {
    LogError("{}: the run has ended, or cannot be reached from here", status.message());
    return kExitGaveUp;
  }
  LogError("{}", status.message());
  if (status.code() == Code::kCancelled) return kExitGaveUp;
  // Turned away: keys, versions or environments don't fit, and won't the next time.
  if (status.code() == Code::kFailedPrecondition && !node.playing()) return kExitUsage;
  // Only what kept it from beginning can be a matter of its config or of its files; a parameter
  // shard reads its own when it has joined.
  const int code = ExitCodeFor(status);
  const bool shard = role == Role::kParamServer;
  const bool permanent = code == kExitUsage || (code == kExitDamaged && !shard);
  return permanent && node.playing() ? kExitFailed : code;
}

struct ConfigArguments {
  std::string key, check;
  bool markdown = false, keys = false;
};

int RunConfig(const ConfigArguments& a) {
  if (a.markdown) {
    fmt::print("{}", ConfigMarkdown());
    return kExitOk;
  }
  if (!a.check.empty()) {
    const Result<Config> config = LoadConfigFile(a.check, {});
    if (!config.ok()) {
      PrintError(config.status());
      return kExitUsage;
    }
    fmt::print("{}", ToToml(*config));
    return kExitOk;
  }
  std::vector<std::string> names;
  bool found = a.key.empty();
  for (const ConfigKey& key : ConfigKeys()) {
    names.emplace_back(key.name);
    if (!a.key.empty() && key.name != a.key) continue;
    found = true;
    if (a.keys) {
      fmt::print("{}\n", key.name);
    } else {
      fmt::print("{} = {}\n    {}{}{}. {}\n", key.name, key.default_value, key.type,
                 key.range.empty() ? "" : ", ", key.range, key.doc);
    }
  }
  if (found) return kExitOk;
  fmt::print(stderr, "troop: {}: {}\n", a.key, UnknownKeyHint(a.key, names));
  return kExitUsage;
}

std::string ConfigHelp() {
  std::string out = "All keys of a config, with default, type, range and meaning:\n";
  for (const ConfigKey& key : ConfigKeys()) {
    out += fmt::format("  {} = {}\n      {}{}{}. {}\n", key.name, key.default_value, key.type,
                       key.range.empty() ? "" : ", ", key.range, key.doc);
  }
  return out;
}

void AddTrainFlags(CLI::App* command, TrainArguments* a) {
  command->add_option("overrides", a->overrides, "key=value, as in the config (troop config)");
  command->add_flag("--plain", a->options.plain, "plain lines, no live block");
  command->add_option("--engine", a->engine,
                      "what starts the processes: local, slurm, mpi, kubernetes (fleet.engine)");
}

// All subcommands; each sets `chosen` to what runs it.
struct Arguments {
  TrainArguments train;
  RoleArguments role;
  ConfigArguments config;
  ShowOptions show;
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

void AddSweepCommands(CLI::App* app, Arguments* a, std::function<int()>* chosen) {
  CLI::App* sweep = app->add_subcommand(
      "sweep", "train a config with several seeds and values; a table and a picture of them");
  SweepArguments& runs = a->sweep.arguments;
  sweep->add_option("config", runs.config, "a TOML file")->required();
  sweep->add_option("overrides", runs.overrides,
                    "key=value, as in the config, or key=a,b,c: a run for each of them");
  sweep->add_option("--seeds", runs.seeds, "runs of each combination (5)")
      ->check(CLI::Range(1, 1000));
  sweep->add_option("--first-seed", runs.first_seed, "they go on from it (1)")
      ->check(CLI::NonNegativeNumber);
  sweep->add_option("--jobs", a->sweep.jobs, "runs side by side (as many as there are cores for)")
      ->check(CLI::Range(1, 1000));
  sweep->add_flag("--overwrite", a->sweep.overwrite, "begin all runs anew");
  sweep->add_flag("--dry-run", a->sweep.dry_run, "print the runs and where they stand");
  sweep->callback([a, chosen] { *chosen = [a] { return Sweep(a->sweep); }; });
  CLI::App* plot = app->add_subcommand("plot", "learning curves of runs and sweeps in one picture");
  plot->add_option("runs", a->plot.paths, "folders of runs, or of sweeps")->required();
  plot->add_option("--out,--png", a->plot.out, "the file to write, .png or .svg (curves.png)");
  plot->add_option("--title", a->plot.title, "above the picture (the environment)");
  plot->add_option("--x", a->plot.axis, "steps, updates or minutes (steps)");
  plot->callback([a, chosen] { *chosen = [a] { return PlotRuns(a->plot); }; });
}

void AddShowCommands(CLI::App* app, Arguments* a, std::function<int()>* chosen) {
  CLI::App* eval =
      app->add_subcommand("eval", "judge a checkpoint: episodes' return, or reviews told right");
  CLI::App* play = app->add_subcommand("play",
                                       "watch a checkpoint play, in the terminal or as a "
                                       "picture");
  for (CLI::App* command : {eval, play}) {
    command
        ->add_option("checkpoint", a->show.path,
                     "a run's folder (newest checkpoint), or one of "
                     "its checkpoints")
        ->required();
    command->add_option("--episodes", a->show.episodes,
                        "how many (eval: 100, or all test reviews; play: 1)");
    command->add_option("--epsilon", a->show.epsilon,
                        "share of random actions (evaluator.epsilon)");
    command->add_option("--seed", a->show.seed, "of the episodes (seed of the run)");
  }
  eval->add_flag("--json", a->show.json, "one line of JSON");
  eval->callback([a, chosen] { *chosen = [a] { return Evaluate(a->show); }; });
  play->add_option("--gif", a->show.gif, "write an animated GIF");
  play->add_option("--png", a->show.png, "write a strip of frames");
  play->add_option("--fps", a->show.frames_per_s, "frames per second (30)");
  play->callback([a, chosen] { *chosen = [a] { return Play(a->show); }; });
  CLI::App* status = app->add_subcommand("status", "what a run is doing, or how it ended");
  status->add_option("run", a->status.run, "a run's folder, or tcp://HOST:PORT of its coordinator")
      ->required();
  status->add_flag("--json", a->status.json, "as JSON");
  status->add_option("--key", a->status.key, "file of a tool's key, for tcp:// (troop keygen)");
  status->callback([a, chosen] { *chosen = [a] { return ShowStatus(a->status); }; });
  CLI::App* scale = app->add_subcommand("scale", "change how many there are of a role, in a run");
  scale->add_option("run", a->scale.run, "a run's folder")->required();
  scale->add_option("count", a->scale.what, "actors=N, replay=K, learners=L, paramserver=K")
      ->required();
  scale->callback([a, chosen] { *chosen = [a] { return Scale(a->scale); }; });
}

void AddEnvCheck(CLI::App* check, EnvCommandOptions* env, std::function<int()>* chosen) {
  check->add_option("id", env->id, "of the environment, or a config file")->required();
  check->add_option("overrides", env->overrides, "key=value, as in the config (troop config)");
  check->add_option("--plugin", env->plugin, "the shared library that it is in");
  check->add_flag("--quick", env->quick, "seconds instead of a minute");
  check->callback([env, chosen] { *chosen = [env] { return TryEnvironment(*env); }; });
}

void AddEnvBench(CLI::App* bench, EnvCommandOptions* env, std::function<int()>* chosen) {
  bench->add_option("id", env->id, "of the environment, or a config file")->required();
  bench->add_option("overrides", env->overrides, "key=value, as in the config (troop config)");
  bench->add_option("--plugin", env->plugin, "the shared library that it is in");
  bench->add_option("--envs", env->envs, "how many are stepped together (8)")
      ->check(CLI::Range(1, 65536));
  bench->add_option("--seconds", env->seconds, "how long (2)")->check(CLI::Range(0.01, 3600.0));
  bench->callback([env, chosen] { *chosen = [env] { return BenchEnvironment(*env); }; });
}

void AddEnvCommands(CLI::App* app, EnvCommandOptions* env, std::function<int()>* chosen) {
  const std::string what = "try an environment, and say what to mend";
  CLI::App* group = app->add_subcommand("env", "environments of your own");
  group->require_subcommand(1);
  CLI::App* list = group->add_subcommand("list", "those built in, and how others are named");
  list->add_option("--plugin", env->plugin, "those of a shared library");
  list->callback([env, chosen] { *chosen = [env] { return ListEnvironments(*env); }; });
  CLI::App* make = group->add_subcommand("new", "write one to begin with, in a folder");
  make->add_option("name", env->name, "of the folder and the environment: my_env")->required();
  make->add_option("--language", env->language, "c, c++ (default) or python");
  make->callback([env, chosen] { *chosen = [env] { return NewEnvironment(*env); }; });
  AddEnvCheck(group->add_subcommand("check", what), env, chosen);
  AddEnvCheck(app->add_subcommand("env-check", what + "; the same as env check"), env, chosen);
  const std::string speed = "steps per second of an environment, and what the bridge to it takes";
  AddEnvBench(group->add_subcommand("bench", speed), env, chosen);
  CLI::App* bench = app->add_subcommand("bench", "how fast parts of a run are on this machine");
  bench->require_subcommand(1);
  AddEnvBench(bench->add_subcommand("env", speed), env, chosen);
}

void AddCheck(CLI::App* app, CheckSyncCommand* a, std::function<int()>* chosen) {
  CLI::App* group = app->add_subcommand("check", "compare parts with plain loops in f64");
  group->require_subcommand(1);
  CLI::App* sync = group->add_subcommand(
      "sync", "all ways in which learners agree; exit code 1 when one does not");
  sync->add_option("--mode", a->mode, "one of them, tensor by tensor (--list)");
  sync->add_option("--seed", a->seed, "of the numbers and the order of messages (1)");
  sync->add_flag("--list", a->list, "names only");
  sync->add_flag("--json", a->json, "a line of JSON a case");
  sync->callback([a, chosen] { *chosen = [a] { return RunCheckSync(*a); }; });
}

void AddTokenize(CLI::App* app, TokenizeOptions* a, std::function<int()>* chosen) {
  CLI::App* tokenize = app->add_subcommand("tokenize", "how a vocabulary cuts text into pieces");
  tokenize->add_option("text", a->texts, "one or more; none: a text a line from standard input");
  tokenize
      ->add_option("--vocab", a->vocabulary,
                   "BERT's vocab.txt, a piece a line, or a SentencePiece .model, such as ALBERT's")
      ->required();
  tokenize->add_flag("--cased", a->cased, "keep capitals and accents, as the vocabulary does");
  tokenize->add_flag("--json", a->json, "a line of JSON a text");
  tokenize->callback([a, chosen] {
    FreeTexts(&a->texts);
    *chosen = [a] { return Tokenize(*a); };
  });
}

void AddPredict(CLI::App* app, PredictOptions* a, std::function<int()>* chosen) {
  CLI::App* predict = app->add_subcommand("predict", "the sentiment of texts, by a trained model");
  predict
      ->add_option("checkpoint", a->path,
                   "a run's folder (newest checkpoint), one of its checkpoints, or a folder of "
                   "Hugging Face files with the vocabulary")
      ->required();
  predict->add_option("text", a->texts, "one or more; none: a text a line from standard input");
  predict->add_flag("--json", a->json, "a line of JSON a text");
  predict->callback([a, chosen] {
    FreeText(&a->path);
    FreeTexts(&a->texts);
    *chosen = [a] { return Predict(*a); };
  });
}

void AddDashboard(CLI::App* app, DashboardCommand* a, std::function<int()>* chosen) {
  CLI::App* dashboard = app->add_subcommand("dashboard", "a web page that shows runs as they go");
  dashboard->add_option("runs", a->runs, "folders of runs, or folders that hold runs")->required();
  dashboard->add_option("--listen", a->address, "HOST:PORT (127.0.0.1:8800); port 0: any free one");
  dashboard->add_option("--token-file", a->token_file,
                        "the token in its one line is asked for; beyond this machine it must be");
  dashboard->add_flag("--insecure", a->insecure, "or anybody may look who reaches the address");
  dashboard->callback([a, chosen] { *chosen = [a] { return ServeDashboard(*a); }; });
}

constexpr char kInsecureHelp[] = "listen beyond this machine without keys";

void AddFleetCommands(CLI::App* app, Arguments* a, std::function<int()>* chosen) {
  CLI::App* join = app->add_subcommand("join", "actors of this machine for a run on another");
  join->add_option("coordinator", a->join.coordinator, "tcp://HOST:PORT: fleet.listen of the run")
      ->required();
  join->add_option("--role", a->join.role,
                   "what they play: actor, or one that the run leaves to others (fleet.elsewhere)");
  join->add_option("--listen", a->join.listen,
                   "address at which others reach this machine (that towards the coordinator)");
  join->add_option("--count", a->join.count, "how many processes (1)")->check(CLI::Range(1, 10000));
  join->add_option("--key", a->join.key, "file of a key of that role (troop keygen)");
  join->add_option("--logs", a->join.logs, "folder for their logs (a temporary one)");
  join->add_option("--wait", a->join.wait_s, "seconds for a coordinator that is not there yet (60)")
      ->check(CLI::Range(0.0, 86400.0));
  join->add_flag("--stay", a->join.stay, "also while the run is stopped, until it is done");
  join->add_option("--health", a->join.health, "a file that `troop health` looks at");
  join->callback([a, chosen] { *chosen = [a] { return Join(a->join); }; });
  CLI::App* doctor = app->add_subcommand(
      "doctor", "look at this machine, a config and a coordinator before a run; what to mend");
  doctor->add_option("config", a->doctor.config, "a TOML file (none: the machine alone)");
  doctor->add_option("overrides", a->doctor.overrides,
                     "key=value, as in the config (troop config)");
  doctor->add_option("--coordinator", a->doctor.coordinator, "tcp://HOST:PORT of a run to join");
  doctor->add_option("--key", a->doctor.key, "file of the key for it (troop keygen)");
  doctor->add_flag("--insecure", a->doctor.insecure, kInsecureHelp);
  doctor->callback([a, chosen] { *chosen = [a] { return Doctor(a->doctor); }; });
  CLI::App* health = app->add_subcommand("health", "whether a `troop join` here is well");
  health->add_option("file", a->health.file, "its --health")->required();
  health->add_flag("--ready", a->health.ready, "and all its roles play");
  health->callback([a, chosen] { *chosen = [a] { return ShowHealth(a->health); }; });
  CLI::App* keygen = app->add_subcommand("keygen", "make keys, one a role or one a user");
  keygen->add_option("folder", a->keygen.folder, "where they shall be")->required();
  keygen->add_option("--role", a->keygen.role, "one key alone, of this role (one for each)");
  keygen->add_option("--name", a->keygen.name, "of the key, such as a user's (the role's)");
  keygen->add_flag("--rotate", a->keygen.rotate,
                   "a new pair for a name that has one; the old one is let in until the next time");
  keygen->callback([a, chosen] { *chosen = [a] { return Keygen(a->keygen); }; });
}

void AddCommands(CLI::App* app, Arguments* a, std::function<int()>* chosen) {
  CLI::App* train = app->add_subcommand("train", "start the fleet of a config on this machine");
  train->add_option("config", a->train.config, "a TOML file, such as configs/apex_cartpole.toml")
      ->required();
  AddTrainFlags(train, &a->train);
  train->add_flag("--insecure", a->train.insecure, kInsecureHelp);
  train->add_flag("--dry-run", a->train.options.dry_run, "print topology, endpoints and memory");
  train->add_flag("--overwrite", a->train.options.overwrite, "replace a run of the same name");
  train->add_flag("--continue", a->train.go_on,
                  "go on with a run of the same name; 0 at once when it is done");
  train->callback([a, chosen] { *chosen = [a] { return RunTrain(a->train); }; });
  CLI::App* resume = app->add_subcommand("resume", "go on with a run from its newest checkpoint");
  resume->add_option("run", a->train.config, "the run's folder")->required();
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
  CLI::App* replay = app->add_subcommand("replay", "serve a replay by itself, until SIGTERM");
  replay->add_option("config", a->train.config, "a TOML file: replay.tables, replay.listen")
      ->required();
  replay->add_option("overrides", a->train.overrides, "key=value, as in the config (troop config)");
  replay->add_flag("--insecure", a->train.insecure, kInsecureHelp);
  replay->callback([a, chosen] { *chosen = [a] { return RunReplay(a->train); }; });
  CLI::App* role = app->add_subcommand("role", "one role of a fleet, alone");
  role->add_option("role", a->role.role,
                   "actor, replay, learner, paramserver, evaluator, inference")
      ->required();
  role->add_option("--index", a->role.index, "which one of its kind (0)");
  role->add_option("--dead-after", a->role.dead_after_s, "fleet.dead_after_s of the run (1.5)")
      ->check(CLI::Range(0.1, 3600.0));
  role->add_option("--coordinator", a->role.coordinator, "endpoint of the coordinator")->required();
  role->add_flag("--any-index", a->role.any_index, "the coordinator gives one");
  role->add_flag("--stay", a->role.stay, "exit code 130 when the run is stopped and not done");
  role->add_option("--reach", a->role.reach, "the address at which others reach this machine");
  role->add_option("--key", a->role.key, "file of this role's key (troop keygen)");
  role->add_flag("--insecure", a->role.insecure, kInsecureHelp);
  role->callback([a, chosen] { *chosen = [a] { return RunRole(a->role); }; });
  CLI::App* config = app->add_subcommand("config", "the keys of a config");
  config->add_option("key", a->config.key, "this one alone");
  config->add_option("--check", a->config.check, "read a file, print it resolved");
  config->add_flag("--markdown", a->config.markdown, "docs/config.md");
  config->add_flag("--keys", a->config.keys, "names only");
  config->footer(ConfigHelp);
  config->callback([a, chosen] { *chosen = [a] { return RunConfig(a->config); }; });
  // For our own processes alone: an empty group hides it.
  CLI::App* job = app->add_subcommand("slurm-job", "the launcher in a job of Slurm");
  job->group("");
  job->add_option("config", a->slurm_job.config, "train.toml of the submission")->required();
  job->add_flag("--overwrite", a->slurm_job.train.overwrite, "replace a run of the same name");
  job->add_flag("--resume", a->slurm_job.train.resume, "go on with it");
  job->callback([a, chosen] { *chosen = [a] { return RunSlurmJob(a->slurm_job); }; });
  CLI::App* worker = app->add_subcommand("env-worker", "play environments for another process");
  worker->group("");
  worker->callback([chosen] { *chosen = RunEnvWorker; });
}

}  // namespace

int RunCommand(int argc, char** argv) {
  // A file that may not grow any more (ulimit -f) is an error of the write, as on a full disk.
  signal(SIGXFSZ, SIG_IGN);
  SetPhaseSink([](const std::string& line) { fmt::print(stderr, "troop: {}\n", line); });
  CLI::App app(
      "Troop trains agents with a fleet of actors, a prioritized replay and learners.\n"
      "Exit codes: 0 done, 1 failed, 2 bad command line or config, 3 in use, 4 damaged file,\n"
      "130 interrupted (resumable).");
  app.set_version_flag("--version", kTroopVersion);
  app.require_subcommand(1);
  Arguments arguments;
  std::function<int()> chosen;
  AddCommands(&app, &arguments, &chosen);
  GroupCommands(&app);
  const std::vector<std::string> words = GuardTexts(argc, argv);
  try {
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
