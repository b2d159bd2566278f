// The flags of `troop sweep`.
#include "apps/sweep/sweep_command.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "apps/sweep/sweep_runner.h"

namespace troop {

namespace {

// Flags of successive halving; PlanSweep checks their values together.
void AddHalvingFlags(CLI::App* sweep, SweepArguments* runs) {
  sweep
      ->add_option("--asha", runs->asha,
                   "stop bad trials early (asynchronous successive halving); unit of the budget: "
                   "steps (run.total_steps) or updates (run.max_updates)")
      ->check(CLI::IsMember({"steps", "updates"}));
  sweep->add_option("--min-resource", runs->min_resource,
                    "steps or updates after which trials are first compared");
  sweep->add_option("--reduction-factor", runs->reduction_factor,
                    "promote one of N trials, to N times the budget (4)");
  sweep->add_option("--early-stopping-rate", runs->early_stopping_rate,
                    "leave out the N lowest rungs (0)");
}

}  // namespace

// Overrides may list several values, which makes them dimensions of the sweep.
void RegisterSweep(CLI::App& app, ChosenCommand* chosen) {
  const auto options = std::make_shared<SweepOptions>();
  CLI::App* sweep = app.add_subcommand(
      "sweep",
      "train a config with all combinations of seeds and values; write a table and a plot");
  // 1. The runs: these values are kept in the sweep folder.
  SweepArguments& runs = options->arguments;
  sweep->add_option("config", runs.config, "TOML file")->required();
  sweep->add_option("overrides", runs.overrides,
                    "override config keys: key=value; key=a,b,c for one run per value; or a range "
                    "for --trials: key=uniform:LOW,HIGH, loguniform:, int:, logint:, choice:a,b,c");
  sweep->add_option("--seeds", runs.seeds, "seeds per combination (5; with --asha 1)")
      ->check(CLI::Range(1, 1000));
  sweep->add_option("--first-seed", runs.first_seed, "first seed (1)")
      ->check(CLI::NonNegativeNumber);
  sweep
      ->add_option("--trials", runs.trials,
                   "random search: sample every range this often; each trial is one combination")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t(kSweepRunsMax)));
  sweep->add_option("--search-seed", runs.search_seed, "seed of the sampled values (1)")
      ->check(CLI::NonNegativeNumber);
  // 2. Their execution; a continued sweep may choose another number.
  AddHalvingFlags(sweep, &runs);
  sweep
      ->add_option("--jobs", options->jobs,
                   "number of concurrent runs (default: as many as the cores allow)")
      ->check(CLI::Range(1, 1000));
  sweep->add_flag("--overwrite", options->overwrite, "restart all runs");
  sweep->add_flag("--dry-run", options->dry_run, "print the runs and their state, and start none");
  sweep->callback([options, chosen] { *chosen = [options] { return Sweep(*options); }; });
}

}  // namespace troop
