#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "fleet/config/config.h"

namespace troop {

// The command line of `troop sweep` that defines its runs.
struct SweepArguments {
  std::string config;  // a TOML file
  // key=value as for `troop train`, or key=a,b,c for one run per value. All combinations are run.
  // Commas inside quotes, brackets and braces do not separate values.
  std::vector<std::string> overrides;
  std::int64_t seeds = 5, first_seed = 1;
};

// One combination of the values.
struct SweepPoint {
  std::string label;  // "actor.n_step=3 replay.alpha=0"; empty if nothing varies
  std::vector<std::string> overrides;
};

// One run: a combination and a seed.
struct SweepRun {
  std::size_t point = 0;
  std::int64_t seed = 0;
  Config config;  // with the run's own name, folder and seed
};

// All runs of a sweep.
struct SweepPlan {
  std::string name;
  std::string path;  // absolute path of the sweep folder, which contains the run folders
  std::vector<SweepPoint> points;
  std::vector<std::int64_t> seeds;
  std::vector<SweepRun> runs;  // seed by seed, so that all points progress alike
};

inline constexpr std::size_t kSweepRunsMax = 10'000;

// Builds the plan from the config file; writes nothing. Errors: those of LoadConfigFile;
// kInvalidArgument: `seed` among the overrides, a duplicate value, too many runs, or a config
// without a final evaluation.
Result<SweepPlan> PlanSweep(const SweepArguments& arguments);

// Splits at top-level commas: "a,b" → {"a", "b"}; "[1,2],[3]" → {"[1,2]", "[3]"}.
std::vector<std::string> SplitValues(std::string_view text);

// Number of concurrent runs: a run needs a core per actor and learner, or one core in serial mode.
// At least 1.
int RunsAtOnce(const Config& config, int cores);

}  // namespace troop
