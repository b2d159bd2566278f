#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/config.h"
#include "core/status.h"

namespace troop {

struct SweepArguments {
  std::string config;  // a TOML file
  // key=value as for `troop train`, or key=a,b,c: one run each. All combinations are run. Commas
  // within quotes, brackets and braces separate nothing.
  std::vector<std::string> overrides;
  std::int64_t seeds = 5, first_seed = 1;
};

// One combination of the values.
struct SweepPoint {
  std::string label;  // "actor.n_step=3 replay.alpha=0"; empty where nothing varies
  std::vector<std::string> overrides;
};

struct SweepRun {
  std::size_t point = 0;
  std::int64_t seed = 0;
  Config config;  // its name and folder are the run's own
};

struct SweepPlan {
  std::string name;
  std::string path;  // of the sweep's folder, absolute; the runs' folders lie in it
  std::vector<SweepPoint> points;
  std::vector<std::int64_t> seeds;
  std::vector<SweepRun> runs;  // seed by seed, so that all points get on alike
};

inline constexpr std::size_t kSweepRunsMax = 10'000;

// All runs of a sweep; reads the config, changes nothing. Errors: those of LoadConfigFile;
// kInvalidArgument: `seed` among the overrides, a value twice, too many runs, a config without a
// final evaluation.
Result<SweepPlan> PlanSweep(const SweepArguments& arguments);

// "a,b" → {"a", "b"}; "[1,2],[3]" → {"[1,2]", "[3]"}.
std::vector<std::string> SplitValues(std::string_view text);

// How many runs go side by side: a run takes a core for each process that computes all the time, or
// one in serial mode. At least one.
int RunsAtOnce(const Config& config, int cores);

}  // namespace troop
