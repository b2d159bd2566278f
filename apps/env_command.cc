#include "apps/env_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "apps/env_check.h"
#include "apps/env_project.h"
#include "apps/env_speed.h"
#include "apps/error_line.h"
#include "apps/train.h"
#include "core/config.h"
#include "envs/plugin_environment.h"
#include "envs/process_vector_env.h"

namespace troop {
namespace {

int Complain(const Status& status) {
  fmt::print(stderr, "troop: {}\n", status.message());
  return ExitCodeFor(status);
}

// One line for people.
std::string Look(const EnvSpec& spec) {
  return fmt::format(
      "{:<22} {:<18} {}{}", spec.id, spec.observation.ToString(),
      spec.action.discrete() ? fmt::format("{} actions", spec.action.count)
                             : fmt::format("action {}", spec.action.tensor().ToString()),
      spec.max_episode_steps == 0 ? "" : fmt::format(", at most {} steps", spec.max_episode_steps));
}

Status List(const EnvCommandOptions& options) {
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
      "  a shared library       env.plugin = \"path.so\", env.id = one of its own "
      "(troop env list --plugin path.so)\n"
      "  Gymnasium, by its id   env.id = \"gymnasium:ALE/Pong-v5\"\n"
      "  your own in Python     env.id = \"python:my_module:make_env\"\n"
      "`troop env new NAME` writes one to begin with; docs/environments.md goes through it.\n");
  return Status::Ok();
}

Result<Config> ConfigFor(const EnvCommandOptions& options) {
  std::vector<std::string> overrides = options.overrides;
  // A path in quotes of its own: a bare one could be taken for a number.
  if (!options.plugin.empty()) overrides.push_back(fmt::format("env.plugin='{}'", options.plugin));
  if (options.id.ends_with(".toml")) return LoadConfigFile(options.id, overrides);
  overrides.push_back(fmt::format("env.id='{}'", options.id));
  return ParseConfig("", "command line", overrides);
}

}  // namespace

int ListEnvironments(const EnvCommandOptions& options) {
  const Status status = List(options);
  return status.ok() ? kExitOk : Complain(status);
}

int NewEnvironment(const EnvCommandOptions& options) {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const auto written = WriteEnvProject(".", options.name, options.language, PackagePrefix(program));
  if (!written.ok()) return Complain(written.status());
  for (const std::string& path : *written) fmt::print("wrote {}\n", path);
  fmt::print("Go on with {}/README.md\n", options.name);
  return kExitOk;
}

int TryEnvironment(const EnvCommandOptions& options) {
  const Result<Config> config = ConfigFor(options);
  if (!config.ok()) {
    PrintError(config.status());
    return kExitUsage;
  }
  fmt::print("{}\n", config->env.id);
  const auto told = [](const Verdict& verdict) {
    constexpr std::string_view kNames[] = {"ok", "note", "FAIL"};
    fmt::print("  {:<5} {:<17} {}\n", kNames[int(verdict.kind)], verdict.item, verdict.text);
    std::fflush(stdout);
  };
  const auto verdicts = CheckEnvironment(
      EnvCheckOptions{.id = config->env.id, .env = EnvOptionsFor(*config), .quick = options.quick},
      told);
  const auto failed = std::ranges::count(verdicts, Verdict::Kind::kFail, &Verdict::kind);
  if (failed == 0) {
    fmt::print("good to train with\n");
    return kExitOk;
  }
  fmt::print("{} to mend\n", failed);
  return kExitFailed;
}

int BenchEnvironment(const EnvCommandOptions& options) {
  const Result<Config> config = ConfigFor(options);
  if (!config.ok()) {
    PrintError(config.status());
    return kExitUsage;
  }
  const EnvOptions env = EnvOptionsFor(*config);
  const bool apart = InProcess(config->env.id, env);
  const int processes = std::clamp(env.processes, 1, options.envs);
  fmt::print(
      "{}: {} environments {}, random actions, one thread here\n", config->env.id, options.envs,
      apart ? fmt::format("in {} process{} of their own", processes, processes == 1 ? "" : "es")
            : "in this process");
  std::fflush(stdout);
  const Result<EnvSpeed> speed =
      MeasureEnvironment(config->env.id, env, options.envs, Seconds(options.seconds));
  if (!speed.ok()) return Complain(speed.status());
  const auto us = [](double seconds) { return seconds * 1e6; };
  fmt::print("  {:.0f} steps/s ({:.0f} to {:.0f} in {} parts), {:.3g} us each\n", speed->median(),
             speed->steps_per_s.front(), speed->steps_per_s.back(), kEnvSpeedParts,
             us(speed->a_step));
  if (env.action_repeat > 1) {
    fmt::print("  {:.0f} frames/s, as each action is held for {}\n",
               speed->median() * env.action_repeat, env.action_repeat);
  }
  if (!speed->inside) {
    fmt::print("  no bridge: it is called as it is\n");
  } else if (processes > 1) {
    fmt::print("  {:.3g} us of work in the environments each; {} processes share it\n",
               us(*speed->inside), processes);
  } else {
    const double bridge = std::max(0.0, speed->a_step - *speed->inside);
    fmt::print("  {:.3g} us in the environment, {:.3g} us in the bridge ({:.0f} %)\n",
               us(*speed->inside), us(bridge), 100 * bridge / speed->a_step);
  }
  return kExitOk;
}

}  // namespace troop
