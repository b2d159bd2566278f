#include "apps/experiment_flags.h"

#include <CLI/CLI.hpp>

namespace troop {

void AddExperiment(CLI::App* app, ParallelOptions* a, std::function<int()>* chosen) {
  CLI::App* group = app->add_subcommand("experiment", "published experiments, on this machine");
  group->require_subcommand(1);
  CLI::App* parallel = group->add_subcommand(
      "imdb-parallel", "BERT and ALBERT, data parallel and tensor parallel: which wins, and why");
  parallel->add_option("overrides", a->overrides,
                       "key=value of all runs; data.reviews and data.vocabulary are needed");
  parallel->add_option("--learners", a->learners, "of a run, one thread each (2)")
      ->check(CLI::Range(2, 16));
  parallel->add_option("--repeats", a->repeats, "runs of each model each way (3)")
      ->check(CLI::Range(1, 100));
  parallel->add_option("--seconds", a->seconds, "that a run's updates should take (10)")
      ->check(CLI::Range(1.0, 3600.0));
  parallel->add_option("--link", a->link,
                       "a machine for each learner, with such a link: 1gbit (needs root)");
  parallel->add_option("--out", a->out, "folder of the runs and results (runs/imdb_parallel)");
  parallel->add_flag("--quick", a->quick, "a tiny model, a few updates: whether all works");
  parallel->add_flag("--overwrite", a->overwrite, "replace an experiment that is there");
  parallel->callback([a, chosen] { *chosen = [a] { return ParallelExperiment(*a); }; });
}

}  // namespace troop
