// The `troop` command line: the list of all commands, parsing and messages about wrong usage.
#include "apps/commands/cli.h"

#include <fmt/format.h>
#include <signal.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "apps/cluster/slurm_job_command.h"
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
#include "apps/deploy/export_command.h"
#include "apps/doctor/doctor_command.h"
#include "apps/envtools/env_command.h"
#include "apps/experiments/experiment_command.h"
#include "apps/monitor/dashboard_command.h"
#include "apps/planner/plan_command.h"
#include "apps/selfcheck/selftest_command.h"
#include "apps/serving/serve_command.h"
#include "apps/sweep/sweep_command.h"
#include "core/base/phase_progress.h"
#include "core/base/version.h"
#include "fleet/launcher/error_line.h"
#include "fleet/launcher/exit_code.h"

namespace troop {
namespace {

using RegisterFunction = void (*)(CLI::App&, ChosenCommand*);

// All commands, in the order of `troop --help` within a group. A new visible command also needs its
// group in GroupCommands. The last two are internal.
constexpr RegisterFunction kCommands[] = {
    RegisterTrain,    RegisterResume,   RegisterEval,      RegisterPlay,   RegisterStatus,
    RegisterScale,    RegisterJoin,     RegisterDoctor,    RegisterHealth, RegisterKeygen,
    RegisterSweep,    RegisterPlot,     RegisterEnv,       RegisterBench,  RegisterSelftest,
    RegisterTokenize, RegisterPredict,  RegisterDashboard, RegisterPlan,   RegisterExperiment,
    RegisterReplay,   RegisterRole,     RegisterConfig,    RegisterExport, RegisterServe,
    RegisterSlurmJob, RegisterEnvWorker};

constexpr char kEmptyValue[] =
    "the value is empty, as of a shell variable that is not set; set it, or omit the argument";

// Rejects empty values of all flags and arguments: many handlers would take one for a flag that is
// not set. Exceptions: a text may be empty, and overrides have their own message.
void RejectEmptyValues(CLI::App* command) {
  for (CLI::Option* option : command->get_options()) {
    const std::string name = option->get_name();
    if (option->get_type_size() == 0 || name == "text" || name == "overrides") continue;
    // A transformation precedes all checks, whose messages would show the value.
    option->transform(
        CLI::Validator([](std::string& value) { return value.empty() ? kEmptyValue : ""; }, ""));
  }
  for (CLI::App* const subcommand : command->get_subcommands({})) RejectEmptyValues(subcommand);
}

// The first "--flag=" of the command line, without "="; empty if there is none. CLI11 takes the
// next word for its value.
std::string FlagWithoutValue(const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (word == "--") break;
    if (word.starts_with("--") && word.find('=') == word.size() - 1)
      return word.substr(0, word.size() - 1);
  }
  return "";
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
  // Both outlive the command: `app` holds its options, and callbacks hold a pointer to `chosen`.
  ChosenCommand chosen;
  for (const auto add : kCommands) add(app, &chosen);
  GroupCommands(&app);
  RejectEmptyValues(&app);
  const std::vector<std::string> words = EscapeBrackets(argc, argv);
  if (const std::string flag = FlagWithoutValue(words); !flag.empty()) {
    PrintError(ExplainUsageError(app, words, fmt::format("{}: {}", flag, kEmptyValue)));
    return kExitUsage;
  }
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
