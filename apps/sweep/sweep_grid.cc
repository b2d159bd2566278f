// Expands the arguments of `troop sweep` into runs: combinations of values times seeds.
#include "apps/sweep/sweep_grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "fleet/run/run_directory.h"

namespace troop {
namespace {

constexpr std::size_t kFolderNameMax = 80;  // bytes, without the seed

// A key with several values.
struct Axis {
  std::string key;
  std::vector<std::string> values;
};

// Splits the overrides into axes (several values) and `fixed` (one value).
Result<std::vector<Axis>> AxesOf(const std::vector<std::string>& overrides,
                                 std::vector<std::string>* fixed) {
  std::vector<Axis> axes;
  for (const std::string& override : overrides) {
    const std::size_t equals = override.find('=');
    const std::string key = override.substr(0, equals);
    if (key == "seed") {
      return InvalidArgument("{}: set seeds with --seeds and --first-seed", override);
    }
    std::vector<std::string> values;
    if (equals != std::string::npos) {
      values = SplitValues(std::string_view(override).substr(equals + 1));
    }
    // A single value forms no axis: it applies to all runs.
    if (values.size() < 2) {
      fixed->push_back(override);
      continue;
    }
    if (key == "name" || key == "log.dir") {
      return InvalidArgument("{}: cannot vary, as all runs of a sweep share one folder", override);
    }
    if (std::ranges::count(axes, key, &Axis::key) > 0) {
      return InvalidArgument("{} is given twice with several values", key);
    }
    // Equal values would train the same run twice in different folders.
    const std::set<std::string> distinct(values.begin(), values.end());
    if (distinct.size() < values.size()) return InvalidArgument("{}: duplicate value", override);
    axes.push_back({key, std::move(values)});
  }
  return axes;
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
      }
    }
    points = std::move(longer);
  }
  return points;
}

// Folder name of a run. Names that become equal because of replaced characters get a number;
// `taken` holds those in use.
std::string FolderOf(const SweepPoint& point, std::int64_t seed, std::set<std::string>* taken) {
  std::string name;
  for (const char c : point.label) {
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

}  // namespace

// A one-pass scanner: `depth` counts open brackets, `quote` is the open quotation mark.
std::vector<std::string> SplitValues(std::string_view text) {
  std::vector<std::string> values{""};
  int depth = 0;
  char quote = 0;
  for (const char c : text) {
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (c == ',' && depth == 0) {
      values.emplace_back();
      continue;
    }
    values.back() += c;
  }
  return values;
}

// Only actors and learners compute all the time; replay and evaluator are not counted.
int RunsAtOnce(const Config& config, int cores) {
  const bool serial = config.fleet.mode == FleetMode::kSerial;
  const std::int64_t busy = serial ? 1 : config.fleet.actors + config.fleet.learners;
  return int(std::max<std::int64_t>(1, cores / std::max<std::int64_t>(1, busy)));
}

// Steps: split the overrides, combine them, load one config per combination, add the seeds.
Result<SweepPlan> PlanSweep(const SweepArguments& arguments) {
  if (arguments.seeds < 1 || arguments.first_seed < 0) {
    return InvalidArgument("--seeds is {} and --first-seed {}, must be at least 1 and 0",
                           arguments.seeds, arguments.first_seed);
  }
  std::vector<std::string> fixed;
  TROOP_ASSIGN_OR_RETURN(const std::vector<Axis> axes, AxesOf(arguments.overrides, &fixed));
  SweepPlan plan;
  TROOP_ASSIGN_OR_RETURN(plan.points, Combine(axes));
  if (plan.points.size() * std::size_t(arguments.seeds) > kSweepRunsMax) {
    return InvalidArgument(
        "{} combinations with {} seeds each are more than {} runs; give fewer values",
        plan.points.size(), arguments.seeds, kSweepRunsMax);
  }
  // One config per combination, all of them validated before the plan is built.
  std::vector<Config> configs;
  for (const SweepPoint& point : plan.points) {
    std::vector<std::string> overrides = fixed;
    overrides.insert(overrides.end(), point.overrides.begin(), point.overrides.end());
    TROOP_ASSIGN_OR_RETURN(Config config, LoadConfigFile(arguments.config, overrides));
    TROOP_RETURN_IF_ERROR(CheckEvaluation(config));
    configs.push_back(std::move(config));
  }
  plan.name = configs[0].name;
  plan.path = RunPath(configs[0]);
  std::set<std::string> taken;
  // Seeds are the outer loop: a sweep that is stopped early has all points for its first seeds.
  for (std::int64_t i = 0; i < arguments.seeds; ++i) {
    plan.seeds.push_back(arguments.first_seed + i);
    for (std::size_t point = 0; point < plan.points.size(); ++point) {
      SweepRun run{point, plan.seeds.back(), configs[point]};
      run.config.seed = run.seed;
      run.config.name = FolderOf(plan.points[point], run.seed, &taken);
      run.config.log.dir = plan.path;
      plan.runs.push_back(std::move(run));
    }
  }
  return plan;
}

}  // namespace troop
