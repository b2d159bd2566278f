#include "apps/plan_flags.h"

#include <CLI/CLI.hpp>
#include <cstdio>

#include "apps/error_line.h"
#include "apps/train.h"

namespace troop {
namespace {

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

void AddPlan(CLI::App* app, PlanArguments* a, std::function<int()>* chosen) {
  CLI::App* plan = app->add_subcommand(
      "plan", "what an update of a supervised config would take on meshes of learners");
  CLI::Option* const config =
      plan->add_option("config", a->config, "a TOML file, such as configs/imdb_small.toml");
  plan->add_option("overrides", a->overrides, "key=value, as in the config (troop config)");
  plan->add_option("--learners", a->options.learners,
                   "at most so many; default: as there are cores, or GPUs")
      ->check(CLI::Range(1, 256));
  CLI::Option* const machine =
      plan->add_option("--machine", a->options.machine,
                       "HOST:PORT of another machine, where `troop plan --serve` waits: plan for "
                       "both, by the link between them");
  plan->add_option("--machines", a->options.machines, "so many like that one; default: 2")
      ->check(CLI::Range(2, 256))
      ->needs(machine);
  CLI::Option* const serve =
      plan->add_option("--serve", a->serve,
                       "ADDRESS:PORT of this machine: wait there for --machine of another one; "
                       "whoever reaches it can measure the link, no more");
  serve->excludes(config)->excludes(machine);
  plan->callback([a, chosen, config, serve] {
    if (config->count() + serve->count() == 0) throw CLI::RequiredError("config");
    *chosen = [a] { return RunPlan(*a); };
  });
}

}  // namespace troop
