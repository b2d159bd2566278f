#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace troop {

// Options of `troop experiment imdb-parallel`.
struct ParallelOptions {
  std::vector<std::string> overrides;  // key=value, applied to all runs
  std::int64_t learners = 2;
  std::int64_t repeats = 3;
  double seconds = 10;                     // intended duration of a run's updates
  std::string link;                        // "1gbit" between learners; empty: no shaped links
  std::string out = "runs/imdb_parallel";  // folder of the runs and the results
  bool quick = false;                      // tiny model, few updates: for tests
  bool overwrite = false;                  // replace an existing experiment
};
// `troop experiment imdb-parallel`: trains BERT and ALBERT, each data-parallel and tensor-parallel,
// and compares the times. Every run is a separate `troop train`. With `link`, each learner runs in
// its own network namespace and joins as an external role. Returns the exit code.
int ParallelExperiment(const ParallelOptions& options);

}  // namespace troop
