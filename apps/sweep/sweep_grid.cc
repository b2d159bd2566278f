// Expands the arguments of `troop sweep` into runs: trials of sampled values, combinations of
// listed values, and seeds.
#include "apps/sweep/sweep_grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "apps/sweep/search_space.h"
#include "fleet/run/run_directory.h"

namespace troop {
namespace {

constexpr std::size_t kFolderNameMax = 80;  // bytes, without the seed
constexpr std::int64_t kSeedsDefault = 5, kSearchSeedDefault = 1;

// A key with several values.
struct Axis {
  std::string key;
  std::vector<std::string> values;
};

// The overrides of a sweep by their kind.
struct Overrides {
  std::vector<std::string> fixed;   // one value
  std::vector<Axis> axes;           // several values
  std::vector<SearchRange> ranges;  // sampled values
};

// Errors: kInvalidArgument: a key that the sweep sets itself, or that varies twice.
Status CheckVaryingKey(const Overrides& known, const std::string& override,
                       const std::string& key) {
  if (key == "name" || key == "log.dir") {
    return InvalidArgument("{}: cannot vary, as all runs of a sweep share one folder", override);
  }
  if (std::ranges::count(known.axes, key, &Axis::key) > 0 ||
      std::ranges::count(known.ranges, key, &SearchRange::key) > 0) {
    return InvalidArgument("{} is given twice with several values", key);
  }
  return Status::Ok();
}

// Sorts the overrides by their kind.
Result<Overrides> SortOverrides(const std::vector<std::string>& overrides) {
  Overrides sorted;
  for (const std::string& override : overrides) {
    const std::size_t equals = override.find('=');
    const std::string key = override.substr(0, equals);
    if (key == "seed") {
      return InvalidArgument("{}: set seeds with --seeds and --first-seed", override);
    }
    TROOP_ASSIGN_OR_RETURN(std::optional<SearchRange> range, ParseRange(override));
    if (range) {
      TROOP_RETURN_IF_ERROR(CheckVaryingKey(sorted, override, key));
      sorted.ranges.push_back(std::move(*range));
      continue;
    }
    std::vector<std::string> values;
    if (equals != std::string::npos) {
      values = SplitValues(std::string_view(override).substr(equals + 1));
    }
    // A single value forms no axis: it applies to all runs.
    if (values.size() < 2) {
      sorted.fixed.push_back(override);
      continue;
    }
    TROOP_RETURN_IF_ERROR(CheckVaryingKey(sorted, override, key));
    // Equal values would train the same run twice in different folders.
    const std::set<std::string> distinct(values.begin(), values.end());
    if (distinct.size() < values.size()) return InvalidArgument("{}: duplicate value", override);
    sorted.axes.push_back({key, std::move(values)});
  }
  return sorted;
}

// All combinations; the last axis varies fastest.
Result<std::vector<SweepPoint>> Combine(const std::vector<Axis>& axes) {
  std::vector<SweepPoint> points{{}};
  for (const Axis& axis : axes) {
    std::vector<SweepPoint> longer;
    // Checked before the product grows, so that memory stays bounded.
    if (points.size() * axis.values.size() > kSweepRunsMax) {
      return InvalidArgument("more than {} combinations; give fewer values", kSweepRunsMax);
    }
    for (const SweepPoint& point : points) {
      for (const std::string& value : axis.values) {
        SweepPoint& next = longer.emplace_back(point);
        next.overrides.push_back(axis.key + "=" + value);
        next.label += (next.label.empty() ? "" : " ") + next.overrides.back();
        next.folder = next.label;
      }
    }
    points = std::move(longer);
  }
  return points;
}

// Errors: kInvalidArgument: one of trials and ranges without the other, or too many runs.
Status CheckTrials(const SweepArguments& arguments, const std::vector<SearchRange>& ranges,
                   std::size_t combinations) {
  // Neither a range nor a flag of the search is ignored silently.
  if (arguments.trials < 0) {
    return InvalidArgument("--trials is {}, must be at least 1", arguments.trials);
  }
  if (!ranges.empty() && arguments.trials == 0) {
    return InvalidArgument("{}: a range is sampled once per trial; add --trials N", ranges[0].text);
  }
  if (ranges.empty() && (arguments.trials > 0 || arguments.search_seed)) {
    return InvalidArgument(
        "{} needs a key with a range to sample from, such as "
        "optimizer.learning_rate=loguniform:1e-5,1e-2",
        arguments.trials > 0 ? "--trials" : "--search-seed");
  }
  if (arguments.search_seed.value_or(0) < 0) {
    return InvalidArgument("--search-seed is {}, must be at least 0", *arguments.search_seed);
  }
  // Compared by division, as the product could overflow.
  if (std::size_t(arguments.trials) > kSweepRunsMax / combinations) {
    return InvalidArgument(
        "{} trials of {} combinations each are more than {} runs; lower "
        "--trials",
        arguments.trials, combinations, kSweepRunsMax);
  }
  return Status::Ok();
}

// Each trial with every combination. Trials are the outer loop, so a larger number of them adds
// runs at the end.
std::vector<SweepPoint> AddTrials(const std::vector<SweepPoint>& combinations,
                                  const std::vector<SearchRange>& ranges,
                                  const SweepArguments& arguments) {
  if (arguments.trials == 0) return combinations;
  std::vector<SweepPoint> points;
  for (std::int64_t trial = 0; trial < arguments.trials; ++trial) {
    const std::vector<std::string> values =
        SampleTrial(ranges, arguments.search_seed.value_or(kSearchSeedDefault), trial);
    // All combinations of a trial have the same sampled values, so they are compared in pairs.
    for (SweepPoint point : combinations) {
      point.folder =
          fmt::format("trial-{}{}{}", trial, point.folder.empty() ? "" : " ", point.folder);
      point.label = fmt::format("trial {}: {}{}{}", trial, point.label,
                                point.label.empty() ? "" : " ", fmt::join(values, " "));
      point.overrides.insert(point.overrides.end(), values.begin(), values.end());
      points.push_back(std::move(point));
    }
  }
  return points;
}

// Folder name of a run. Names that become equal because of replaced characters get a number;
// `taken` holds those in use.
std::string FolderOf(const SweepPoint& point, std::int64_t seed, std::set<std::string>* taken) {
  std::string name;
  for (const char c : point.folder) {
    const auto u = static_cast<unsigned char>(c);
    name += std::isalnum(u) || c == '.' || c == '_' ? c : '-';
  }
  name.resize(std::min(name.size(), kFolderNameMax));
  // A leading "." would hide the folder, a leading "-" would look like a flag.
  while (!name.empty() && (name[0] == '.' || name[0] == '-')) name.erase(0, 1);
  name += fmt::format("{}seed-{}", name.empty() ? "" : "-", seed);
  std::string distinct = name;
  for (int i = 2; !taken->insert(distinct).second; ++i) distinct = fmt::format("{}-{}", name, i);
  return distinct;
}

// Errors: kInvalidArgument: the run will have no final score.
Status CheckEvaluation(const Config& config) {
  if (config.evaluator.enabled && FinalEpisodes(config) > 0) return Status::Ok();
  return InvalidArgument(
      "a sweep compares final evaluations; set evaluator.enabled = true and "
      "evaluator.final_episodes >= 1");
}

// Errors: kInvalidArgument: seeds out of range.
Result<std::vector<std::int64_t>> SeedsOf(const SweepArguments& a) {
  const std::int64_t seeds = a.seeds.value_or(a.asha.empty() ? kSeedsDefault : 1);
  if (seeds < 1 || a.first_seed < 0) {
    return InvalidArgument("--seeds is {} and --first-seed {}, must be at least 1 and 0", seeds,
                           a.first_seed);
  }
  // A trial with several runs would have several checkpoints to continue from.
  if (seeds > 1 && !a.asha.empty()) {
    return InvalidArgument(
        "--seeds is {}, must be 1 with --asha, which ranks single runs; train its best trials with "
        "several seeds in a separate sweep",
        seeds);
  }
  std::vector<std::int64_t> list;
  // One more than the limit is enough to be rejected.
  for (std::int64_t i = 0; i < std::min<std::int64_t>(seeds, kSweepRunsMax + 1); ++i) {
    list.push_back(a.first_seed + i);
  }
  return list;
}

// The settings of successive halving; nullopt without --asha. Errors: kInvalidArgument.
Result<std::optional<HalvingSettings>> HalvingOf(const SweepArguments& a,
                                                 const std::vector<Config>& configs) {
  if (a.asha.empty()) {
    // A flag without effect would look like a setting of the sweep.
    const char* const given = a.min_resource          ? "--min-resource"
                              : a.reduction_factor    ? "--reduction-factor"
                              : a.early_stopping_rate ? "--early-stopping-rate"
                                                      : nullptr;
    if (given == nullptr) return std::optional<HalvingSettings>();
    return InvalidArgument("{} has an effect only with --asha steps or --asha updates", given);
  }
  const auto resource = ParseEnum<HalvingResource>(a.asha);
  if (!resource) return InvalidArgument("--asha is {}, must be steps or updates", a.asha);
  if (!a.min_resource) {
    return InvalidArgument(
        "--asha needs --min-resource N, the {} after which trials are first "
        "compared",
        a.asha);
  }
  if (IsSupervised(configs[0])) {
    return InvalidArgument(
        "--asha supports no {} run, whose budget is given in epochs; use a grid "
        "or --trials",
        AlgorithmName(configs[0].learner));
  }
  HalvingSettings settings{.resource = *resource,
                           .min_resource = *a.min_resource,
                           .max_resource = HalvingBudget(configs[0], *resource)};
  settings.reduction_factor = a.reduction_factor.value_or(settings.reduction_factor);
  settings.early_stopping_rate = a.early_stopping_rate.value_or(settings.early_stopping_rate);
  // Rungs are common to all trials.
  for (const Config& config : configs) {
    if (HalvingBudget(config, *resource) == settings.max_resource) continue;
    return InvalidArgument(
        "--asha needs one maximum budget for all trials; give {} a single value",
        *resource == HalvingResource::kSteps ? "run.total_steps" : "run.max_updates");
  }
  TROOP_RETURN_IF_ERROR(CheckHalving(settings));
  return std::optional(settings);
}

}  // namespace

// run.max_updates = 0 means no limit on updates; CheckHalving rejects it as a maximum.
std::int64_t HalvingBudget(const Config& config, HalvingResource resource) {
  return resource == HalvingResource::kSteps ? std::int64_t(config.run.total_steps)
                                             : config.run.max_updates;
}

Config WithHalvingBudget(Config config, HalvingResource resource, std::int64_t budget) {
  if (resource == HalvingResource::kSteps) {
    config.run.total_steps = double(budget);
  } else {
    config.run.max_updates = budget;
  }
  return config;
}

// Only actors and learners compute all the time; replay and evaluator are not counted.
int RunsAtOnce(const Config& config, int cores) {
  const bool serial = config.fleet.mode == FleetMode::kSerial;
  const std::int64_t busy = serial ? 1 : config.fleet.actors + config.fleet.learners;
  return int(std::max<std::int64_t>(1, cores / std::max<std::int64_t>(1, busy)));
}

// Steps: sort the overrides, combine them, sample the trials, load one config per combination, add
// the seeds.
Result<SweepPlan> PlanSweep(const SweepArguments& arguments) {
  TROOP_ASSIGN_OR_RETURN(std::vector<std::int64_t> seeds, SeedsOf(arguments));
  TROOP_ASSIGN_OR_RETURN(const Overrides sorted, SortOverrides(arguments.overrides));
  TROOP_ASSIGN_OR_RETURN(const std::vector<SweepPoint> combinations, Combine(sorted.axes));
  TROOP_RETURN_IF_ERROR(CheckTrials(arguments, sorted.ranges, combinations.size()));
  SweepPlan plan{.points = AddTrials(combinations, sorted.ranges, arguments)};
  if (plan.points.size() * seeds.size() > kSweepRunsMax) {
    return InvalidArgument(
        "{} combinations with {} seeds each are more than {} runs; give fewer values",
        plan.points.size(), seeds.size(), kSweepRunsMax);
  }
  // One config per combination, all of them validated before the plan is built.
  std::vector<Config> configs;
  for (const SweepPoint& point : plan.points) {
    std::vector<std::string> overrides = sorted.fixed;
    overrides.insert(overrides.end(), point.overrides.begin(), point.overrides.end());
    TROOP_ASSIGN_OR_RETURN(Config config, LoadConfigFile(arguments.config, overrides));
    TROOP_RETURN_IF_ERROR(CheckEvaluation(config));
    configs.push_back(std::move(config));
  }
  TROOP_ASSIGN_OR_RETURN(plan.halving, HalvingOf(arguments, configs));
  plan.name = configs[0].name;
  plan.path = RunPath(configs[0]);
  std::set<std::string> taken;
  // Seeds are the outer loop: a sweep that is stopped early has all points for its first seeds.
  plan.seeds = std::move(seeds);
  for (const std::int64_t seed : plan.seeds) {
    for (std::size_t point = 0; point < plan.points.size(); ++point) {
      SweepRun run{point, seed, configs[point]};
      run.config.seed = run.seed;
      run.config.name = FolderOf(plan.points[point], run.seed, &taken);
      run.config.log.dir = plan.path;
      plan.runs.push_back(std::move(run));
    }
  }
  return plan;
}

}  // namespace troop
