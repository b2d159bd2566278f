// The flags of `troop plan`.
#include "apps/planner/plan_command.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "apps/planner/mesh_planner.h"
#include "fleet/launcher/error_line.h"
#include "fleet/launcher/exit_code.h"

namespace troop {
namespace {

// The command line of `troop plan`.
struct PlanArguments {
  std::string config;
  std::vector<std::string> overrides;
  std::string serve;  // ADDRESS:PORT to serve at; empty: plan
  PlanOptions options;
};

// `--serve` needs no config.
int RunPlan(const PlanArguments& a) {
  if (!a.serve.empty()) return ServePlanLink(a.serve);
  const Result<Config> config = LoadConfigFile(a.config, a.overrides);
  if (!config.ok()) {
    PrintError(config.status());
    return kExitUsage;
  }
  return PlanCommand(*config, a.options);
}

}  // namespace

// Two forms: plan a config, or answer the link measurements of another machine (--serve).
void RegisterPlan(CLI::App& app, ChosenCommand* chosen) {
  const auto a = std::make_shared<PlanArguments>();
  CLI::App* plan = app.add_subcommand(
      "plan", "predict the time per update of a supervised config for each mesh of learners");
  CLI::Option* const config =
      plan->add_option("config", a->config, "TOML file, such as configs/imdb_small.toml");
  plan->add_option("overrides", a->overrides, kOverridesHelp);
  plan->add_option("--learners", a->options.learners,
                   "maximum number of learners (default: number of cores, or of GPUs)")
      ->check(CLI::Range(1, 256));
  CLI::Option* const machine =
      plan->add_option("--machine", a->options.machine,
                       "HOST:PORT of a machine that runs `troop plan --serve`: plan for both "
                       "machines and the link between them");
  plan->add_option("--machines", a->options.machines,
                   "number of identical machines, including this one (2)")
      ->check(CLI::Range(2, 256))
      ->needs(machine);
  CLI::Option* const serve =
      plan->add_option("--serve", a->serve,
                       "ADDRESS:PORT on which this machine answers the link measurements of "
                       "--machine; any client that reaches it can measure the link");
  // The serving side only answers, so it takes neither a config nor a peer.
  serve->excludes(config)->excludes(machine);
  // CLI11 cannot express "config or --serve", so it is checked here.
  plan->callback([a, chosen, config, serve] {
    if (config->count() + serve->count() == 0) throw CLI::RequiredError("config");
    *chosen = [a] { return RunPlan(*a); };
  });
}

}  // namespace troop
