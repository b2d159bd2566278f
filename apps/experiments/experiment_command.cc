// The flags of `troop experiment`.
#include "apps/experiments/experiment_command.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "apps/experiments/imdb_parallel.h"

namespace troop {

// A group, so that further experiments can follow as subcommands.
void RegisterExperiment(CLI::App& app, ChosenCommand* chosen) {
  const auto a = std::make_shared<ParallelOptions>();
  CLI::App* group =
      app.add_subcommand("experiment", "reproduce published experiments on this machine");
  group->require_subcommand(1);
  CLI::App* parallel = group->add_subcommand(
      "imdb-parallel", "compare data and tensor parallelism, for BERT and ALBERT");
  // The defaults in the help are those of ParallelOptions.
  parallel->add_option("overrides", a->overrides,
                       "key=value for all runs; data.reviews and data.vocabulary are required");
  parallel->add_option("--learners", a->learners, "learners per run, one thread each (2)")
      ->check(CLI::Range(2, 16));
  parallel->add_option("--repeats", a->repeats, "runs per model and parallelism (3)")
      ->check(CLI::Range(1, 100));
  parallel->add_option("--seconds", a->seconds, "duration of a run's updates (10)")
      ->check(CLI::Range(1.0, 3600.0));
  parallel->add_option("--link", a->link,
                       "put each learner into its own network namespace, with links of this rate, "
                       "such as 1gbit (needs root)");
  parallel->add_option("--out", a->out, "folder of runs and results (runs/imdb_parallel)");
  parallel->add_flag("--quick", a->quick, "test run: a tiny model and a few updates");
  parallel->add_flag("--overwrite", a->overwrite, "replace an existing experiment");
  parallel->callback([a, chosen] { *chosen = [a] { return ParallelExperiment(*a); }; });
}

}  // namespace troop
