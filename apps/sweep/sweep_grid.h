#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/sweep/successive_halving.h"
#include "core/base/status.h"
#include "fleet/config/config.h"

namespace troop {

// The command line of `troop sweep` that defines its runs.
struct SweepArguments {
  std::string config;  // a TOML file
  // key=value as for `troop train`; key=a,b,c for one run per value, of which all combinations are
  // run; or a range that is sampled for each trial (search_space.h). Commas inside quotes, brackets
  // and braces do not separate values.
  std::vector<std::string> overrides;
  std::optional<std::int64_t> seeds;  // default: 5; with successive halving 1, and only 1
  std::int64_t first_seed = 1;
  // Number of trials of a random search, each with every combination of the listed values; 0: no
  // random search.
  std::int64_t trials = 0;
  std::optional<std::int64_t> search_seed;  // of the sampled values; default: 1
  // Successive halving: "steps" or "updates"; the maximum resource is run.total_steps or
  // run.max_updates. The others need it, and it needs min_resource.
  std::string asha;
  std::optional<std::int64_t> min_resource, reduction_factor, early_stopping_rate;
};

// One combination of the values.
struct SweepPoint {
  std::string label;  // "actor.n_step=3 replay.alpha=0"; empty if nothing varies
  std::vector<std::string> overrides;
  // Begin of the folder names: the label, but "trial-7" in place of sampled values, so that a
  // folder of another value is found and rejected.
  std::string folder;
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
  // Successive halving: each point is a trial with one run, whose config has the maximum resource.
  std::optional<HalvingSettings> halving;
};

inline constexpr std::size_t kSweepRunsMax = 10'000;

// Builds the plan from the config file; writes nothing. Errors: those of LoadConfigFile and of
// ParseRange; kInvalidArgument: `seed` among the overrides, a duplicate value, a key that is given
// twice, a range without trials or trials without a range, too many runs, a config without a
// final evaluation, or settings of successive halving that do not fit.
Result<SweepPlan> PlanSweep(const SweepArguments& arguments);

// The budget of a run in the unit of successive halving; WithHalvingBudget replaces it.
std::int64_t HalvingBudget(const Config& config, HalvingResource resource);
Config WithHalvingBudget(Config config, HalvingResource resource, std::int64_t budget);

// Number of concurrent runs: a run needs a core per actor and learner, or one core in serial mode.
// At least 1.
int RunsAtOnce(const Config& config, int cores);

}  // namespace troop
