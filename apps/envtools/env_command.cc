// `troop env list|new|check|bench`: argument handling and printed output. The work is in
// env_template, env_checker and env_benchmark.
#include "apps/envtools/env_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "apps/envtools/env_benchmark.h"
#include "apps/envtools/env_checker.h"
#include "apps/envtools/env_template.h"
#include "core/base/counted.h"
#include "envs/plugin/plugin_environment.h"
#include "envs/subprocess/subproc_vector_env.h"
#include "envs/subprocess/worker_main.h"
#include "fleet/config/config.h"
#include "fleet/config/role_configs.h"
#include "fleet/launcher/error_line.h"
#include "fleet/launcher/exit_code.h"

namespace troop {
namespace {

// Prints an error and returns its exit code.
int ReportError(const Status& status) {
  fmt::print(stderr, "troop: {}\n", status.message());
  return ExitCodeFor(status);
}

// One human-readable line: id, observation, actions, step limit.
std::string Look(const EnvSpec& spec) {
  return fmt::format(
      "{:<22} {:<18} {}{}", spec.id, spec.observation.ToString(),
      spec.action.discrete() ? fmt::format("{} actions", spec.action.count)
                             : fmt::format("action {}", spec.action.tensor().ToString()),
      spec.max_episode_steps == 0 ? "" : fmt::format(", at most {} steps", spec.max_episode_steps));
}

Status List(const EnvCommandOptions& options) {
  // With --plugin: only the environments of that library; one that fails to load shows its error.
  if (!options.plugin.empty()) {
    TROOP_ASSIGN_OR_RETURN(const auto ids, PluginEnvironmentIds(options.plugin));
    for (const std::string& id : ids) {
      const Result<EnvSpec> spec = FindEnvSpec(id, {.plugin = options.plugin});
      fmt::print("{}\n", spec.ok() ? Look(*spec) : id + "  " + spec.status().message());
    }
    return Status::Ok();
  }
  fmt::print("Built in (env.id):\n");
  for (const std::string& id : EnvironmentIds()) {
    TROOP_ASSIGN_OR_RETURN(const EnvSpec spec, FindEnvSpec(id, {}));
    fmt::print("  {}\n", Look(spec));
  }
  fmt::print(
      "Others:\n"
      "  a shared library       env.plugin = \"path.so\", env.id = one of its ids "
      "(troop env list --plugin path.so)\n"
      "  Gymnasium, by its id   env.id = \"gymnasium:ALE/Pong-v5\"\n"
      "  your own in Python     env.id = \"python:my_module:make_env\"\n"
      "`troop env new NAME` writes an example to start from; docs/guide/environments.md explains "
      "it.\n");
  return Status::Ok();
}

// The config file given as `id`, or the default config with that environment id.
Result<Config> ConfigFor(const EnvCommandOptions& options) {
  std::vector<std::string> overrides = options.overrides;
  // The path is quoted: the config parser could read a bare one as a number.
  if (!options.plugin.empty()) overrides.push_back(fmt::format("env.plugin='{}'", options.plugin));
  if (options.id.ends_with(".toml")) return LoadConfigFile(options.id, overrides);
  overrides.push_back(fmt::format("env.id='{}'", options.id));
  return ParseConfig("", "command line", overrides);
}

constexpr char kBenchHelp[] =
    "measure the steps/s of an environment, and the overhead of a separate process if it has one";

// The environment that a command tries: check and bench.
void AddEnvironment(CLI::App* command, EnvCommandOptions* env) {
  command->add_option("id", env->id, "environment id, or a config file")->required();
  command->add_option("overrides", env->overrides, kOverridesHelp);
  command->add_option("--plugin", env->plugin, "shared library that contains the environment");
}

// Called for `env bench` and for `bench env`.
void AddBench(CLI::App* group, const char* name, ChosenCommand* chosen) {
  const auto env = std::make_shared<EnvCommandOptions>();
  CLI::App* bench = group->add_subcommand(name, kBenchHelp);
  AddEnvironment(bench, env.get());
  bench->add_option("--envs", env->envs, "environments stepped together (8)")
      ->check(CLI::Range(1, 65536));
  bench->add_option("--seconds", env->seconds, "seconds to run (2)")
      ->check(CLI::Range(0.01, 3600.0));
  bench->callback([env, chosen] { *chosen = [env] { return BenchEnvironment(*env); }; });
}

}  // namespace

int ListEnvironments(const EnvCommandOptions& options) {
  const Status status = List(options);
  return status.ok() ? kExitOk : ReportError(status);
}

int NewEnvironment(const EnvCommandOptions& options) {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  // The example's build file names the prefix of the running program for find_package(troop).
  const auto written = WriteEnvProject(".", options.name, options.language, PackagePrefix(program));
  if (!written.ok()) return ReportError(written.status());
  for (const std::string& path : *written) fmt::print("wrote {}\n", path);
  fmt::print("Next: read {}/README.md\n", options.name);
  return kExitOk;
}

int TryEnvironment(const EnvCommandOptions& options) {
  const Result<Config> config = ConfigFor(options);
  if (!config.ok()) {
    PrintError(config.status());
    return kExitUsage;
  }
  // Each verdict is printed as soon as its check ends: a full check may take minutes.
  fmt::print("{}\n", config->env.id);
  const auto print = [](const Verdict& verdict) {
    constexpr std::string_view kNames[] = {"ok", "note", "FAIL"};
    fmt::print("  {:<5} {:<17} {}\n", kNames[int(verdict.kind)], verdict.item, verdict.text);
    std::fflush(stdout);
  };
  const auto verdicts = CheckEnvironment(
      EnvCheckOptions{.id = config->env.id, .env = EnvOptionsOf(*config), .quick = options.quick},
      print);
  // Notes do not fail the check.
  const auto failed = std::ranges::count(verdicts, Verdict::Kind::kFail, &Verdict::kind);
  if (failed == 0) {
    fmt::print("ready for training\n");
    return kExitOk;
  }
  fmt::print("{} failed\n", Counted(failed, "check"));
  return kExitFailed;
}

int BenchEnvironment(const EnvCommandOptions& options) {
  const Result<Config> config = ConfigFor(options);
  if (!config.ok()) {
    PrintError(config.status());
    return kExitUsage;
  }
  const EnvOptions env = EnvOptionsOf(*config);
  // Environments in other processes share them evenly; more processes than environments are
  // useless.
  const bool apart = InProcess(config->env.id, env);
  const int processes = std::clamp(env.processes, 1, options.envs);
  fmt::print("{}: {} environments {}, random actions, one thread in this process\n", config->env.id,
             options.envs,
             apart ? fmt::format("in {} separate process{}", processes, processes == 1 ? "" : "es")
                   : "in this process");
  std::fflush(stdout);
  const Result<EnvSpeed> speed =
      MeasureEnvironment(config->env.id, env, options.envs, Seconds(options.seconds));
  if (!speed.ok()) return ReportError(speed.status());
  // The speed of the parts, slowest to fastest, shows the noise of the machine.
  const auto us = [](double seconds) { return seconds * 1e6; };
  fmt::print("  {:.0f} steps/s ({:.0f} to {:.0f} in {} parts), {:.3g} us each\n", speed->median(),
             speed->steps_per_s.front(), speed->steps_per_s.back(), kEnvSpeedParts,
             us(speed->a_step));
  if (env.action_repeat > 1) {
    fmt::print("  {:.0f} frames/s, as each action is held for {}\n",
               speed->median() * env.action_repeat, env.action_repeat);
  }
  // Bridge overhead is step time minus environment time. With several processes the environments
  // overlap, so the difference is not an overhead.
  if (!speed->inside) {
    fmt::print("  no bridge: called directly\n");
  } else if (processes > 1) {
    fmt::print("  {:.3g} us per step in the environments, shared by {} processes\n",
               us(*speed->inside), processes);
  } else {
    const double bridge = std::max(0.0, speed->a_step - *speed->inside);
    fmt::print("  {:.3g} us in the environment, {:.3g} us in the bridge ({:.0f} %)\n",
               us(*speed->inside), us(bridge), 100 * bridge / speed->a_step);
  }
  return kExitOk;
}

// A group without a command is an error, and its help lists the commands.
void RegisterEnv(CLI::App& app, ChosenCommand* chosen) {
  const auto env = std::make_shared<EnvCommandOptions>();
  CLI::App* group = app.add_subcommand("env", "list, create, check and benchmark environments");
  group->require_subcommand(1);
  CLI::App* list = group->add_subcommand("list", "list environments and id formats");
  list->add_option("--plugin", env->plugin, "list the environments of a shared library");
  list->callback([env, chosen] { *chosen = [env] { return ListEnvironments(*env); }; });
  CLI::App* make = group->add_subcommand("new", "create an example environment in a new folder");
  make->add_option("name", env->name, "folder and environment name, such as my_env")->required();
  make->add_option("--language", env->language, "language: c, c++ (default) or python");
  make->callback([env, chosen] { *chosen = [env] { return NewEnvironment(*env); }; });
  CLI::App* check = group->add_subcommand("check", "check an environment and suggest fixes");
  AddEnvironment(check, env.get());
  check->add_flag("--quick", env->quick, "run a quick check: seconds instead of a minute");
  check->callback([env, chosen] { *chosen = [env] { return TryEnvironment(*env); }; });
  AddBench(group, "bench", chosen);
}

void RegisterBench(CLI::App& app, ChosenCommand* chosen) {
  CLI::App* group = app.add_subcommand("bench", "benchmark parts of a run on this machine");
  group->require_subcommand(1);
  AddBench(group, "env", chosen);
}

// An empty group hides the command from --help.
void RegisterEnvWorker(CLI::App& app, ChosenCommand* chosen) {
  CLI::App* worker = app.add_subcommand("env-worker", "run environments for another process");
  worker->group("");
  worker->callback([chosen] { *chosen = RunEnvWorker; });
}

}  // namespace troop
