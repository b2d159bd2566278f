#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace troop {

struct ParallelOptions {
  std::vector<std::string> overrides;  // key=value, of all runs
  std::int64_t learners = 2;
  std::int64_t repeats = 3;
  double seconds = 10;                     // that a run's updates should take
  std::string link;                        // "1gbit" between learners; empty: all on this machine
  std::string out = "runs/imdb_parallel";  // folder of the runs and of what comes out
  bool quick = false;                      // sizes and numbers of updates for tests
  bool overwrite = false;                  // replaces an experiment that is there
};
// `troop experiment imdb-parallel`: trains BERT and ALBERT, each with learners that share batches
// and with learners that share the model, each a `troop train` of its own, and compares them. With
// a link each learner is a machine of its own, and joins. Returns the exit code.
int ParallelExperiment(const ParallelOptions& options);

}  // namespace troop
