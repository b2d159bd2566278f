// Scores of a sweep as a table, JSON and plot.
#include "apps/sweep/sweep_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <numeric>
#include <set>

#include "apps/sweep/score_interval.h"
#include "core/base/version.h"
#include "core/graphics/plot/line_plot.h"
#include "core/storage/json.h"
#include "fleet/run/task_info.h"

namespace troop {
namespace {

constexpr char kFile[] = "sweep.json";
constexpr std::size_t kFileBytesMax = 64 << 20;  // above sweep.json of kSweepRunsMax runs
// The number of characters that fit below the plot.
constexpr std::size_t kCaptionColumns = 150;

// A number member, or 0.
double Number(const JsonValue& object, std::string_view key) {
  const JsonValue* const value = object.Find(key);
  return value == nullptr ? 0 : value->number;
}

// The first line in which two configs differ, for an error message.
std::string FirstDifference(const Config& there, const Config& wanted) {
  const std::string a = ToToml(there), b = ToToml(wanted);
  std::size_t at = 0;
  while (at < a.size() && at < b.size() && a[at] == b[at]) ++at;
  // The whole line around the first different byte, which shows the key.
  const auto line = [at](const std::string& text) {
    const std::size_t begin = at == 0 ? 0 : text.rfind('\n', at - 1) + 1;
    return text.substr(begin, text.find('\n', at) - begin);
  };
  return fmt::format("there \"{}\", now \"{}\"", line(a), line(b));
}

// False for a trial that failed before its first score.
bool HasMean(const std::optional<SweepScore>& score) { return score && !std::isnan(score->mean); }

// Scores of the finished runs of one point.
std::vector<double> FinishedMeans(const SweepPlan& plan, const SweepScores& scores,
                                  std::size_t point) {
  std::vector<double> means;
  for (std::size_t i = 0; i < plan.runs.size(); ++i) {
    if (plan.runs[i].point == point && HasMean(scores[i])) means.push_back(scores[i]->mean);
  }
  return means;
}

// "7", or "5 to 9" if the runs differ.
template <class F>
std::string Range(const SweepScores& scores, F value) {
  std::set<std::int64_t> values;
  for (const auto& score : scores) {
    if (HasMean(score)) values.insert(value(*score));
  }
  if (values.empty()) return "no";
  const auto with_commas = [](std::int64_t n) {
    std::string text = std::to_string(n);
    for (int i = int(text.size()) - 3; i > 0; i -= 3) text.insert(std::size_t(i), 1, ',');
    return text;
  };
  const std::string first = with_commas(*values.begin());
  return values.size() == 1 ? first : first + " to " + with_commas(*values.rbegin());
}

// The distinct values of a config key over all runs: "0.1", or "0.1, 0.05".
template <class F>
std::string Values(const SweepPlan& plan, F value) {
  std::vector<std::string> texts;
  for (const SweepRun& run : plan.runs) {
    const std::string text = fmt::format("{}", value(run.config));
    if (std::ranges::find(texts, text) == texts.end()) texts.push_back(text);
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

// A point without its environment, and its normalized scores in each environment.
struct TaskGroup {
  std::string label;
  std::vector<std::vector<double>> scores;  // a stratum per environment
};

// The points of a sweep over several environments, grouped by their other values. Scores are
// normalized in each environment, to 0 for the lowest and 1 for the highest one of the sweep (0 if
// all are equal). Groups with an environment without a score are left out. Empty without several
// environments.
std::vector<TaskGroup> TaskGroups(const SweepPlan& plan, const SweepScores& scores) {
  std::map<std::string, std::pair<double, double>> extremes;  // by environment
  std::vector<std::vector<double>> means;                     // by point
  std::vector<std::string> tasks;                             // by point
  const auto is_task = [](const std::string& o) { return o.starts_with("env.id="); };
  for (std::size_t i = 0; i < plan.points.size(); ++i) {
    const auto& overrides = plan.points[i].overrides;
    const auto task = std::ranges::find_if(overrides, is_task);
    tasks.push_back(task == overrides.end() ? "" : *task);
    means.push_back(FinishedMeans(plan, scores, i));
    for (const double mean : means.back()) {
      auto& [low, high] = extremes.try_emplace(tasks.back(), mean, mean).first->second;
      low = std::min(low, mean);
      high = std::max(high, mean);
    }
  }
  const std::set<std::string> distinct(tasks.begin(), tasks.end());
  std::vector<TaskGroup> groups;
  if (distinct.size() < 2 || plan.halving) return groups;
  for (std::size_t i = 0; i < plan.points.size(); ++i) {
    std::vector<std::string> others = plan.points[i].overrides;
    std::erase_if(others, is_task);
    const std::string label = fmt::format("{}", fmt::join(others, " "));
    auto group = std::ranges::find(groups, label, &TaskGroup::label);
    if (group == groups.end()) group = groups.insert(group, {.label = label});
    if (means[i].empty()) continue;
    const auto [low, high] = extremes.at(tasks[i]);
    for (double& mean : means[i]) mean = high > low ? (mean - low) / (high - low) : 0;
    group->scores.push_back(std::move(means[i]));
  }
  // An environment that is missing would make the groups incomparable.
  std::erase_if(groups, [&](const TaskGroup& g) { return g.scores.size() < distinct.size(); });
  return groups;
}

// One run as a JSON object of sweep.json.
JsonObject RowOf(const SweepPlan& plan, const SweepRun& run,
                 const std::optional<SweepScore>& score) {
  JsonObject row;
  row.Add("run", run.config.name)
      .Add("point", plan.points[run.point].label)
      .Add("seed", run.seed)
      .Add("epsilon", run.config.evaluator.epsilon)
      .Add("finished", score.has_value() && !score->failed);
  if (plan.halving) row.Add("failed", score.has_value() && score->failed);
  // An unfinished run has no score members, so that readers can tell it from a score of 0.
  if (!HasMean(score)) return row;
  if (plan.halving) row.Add("rung", std::int64_t(score->rung));
  return row.Add("return_mean", score->mean)
      .Add("return_std", score->std)
      .Add("return_min", score->low)
      .Add("return_max", score->high)
      .Add("episodes", score->episodes)
      .Add("steps", score->steps)
      .Add("updates", score->updates)
      .Add("wall_s", score->wall_s)
      .Add("version", score->version);
}

// Members of a point.
void AddInterval(const ScoreInterval& interval, JsonObject* out) {
  out->Add("iqm", interval.iqm).Add("iqm_low", interval.low).Add("iqm_high", interval.high);
}

// sweep.json: the points with their intervals, their summary over tasks, and the runs.
std::string Json(const SweepPlan& plan, const SweepScores& scores) {
  JsonArray rows, points;
  for (std::size_t i = 0; i < plan.runs.size(); ++i) {
    rows.Add(RowOf(plan, plan.runs[i], scores[i]));
  }
  for (std::size_t i = 0; i < plan.points.size(); ++i) {
    JsonObject point;
    point.Add("point", plan.points[i].label);
    if (const std::vector<double> means = FinishedMeans(plan, scores, i); !means.empty()) {
      const MeanInterval interval = BootstrapMean(means);
      point.Add("seeds", std::int64_t(means.size()))
          .Add("mean", interval.mean)
          .Add("low", interval.low)
          .Add("high", interval.high);
      AddInterval(BootstrapInterquartileMean({{means}}), &point);
    }
    points.Add(point);
  }
  JsonObject sweep;
  sweep.Add("name", plan.name).Add("points", points);
  if (const std::vector<TaskGroup> groups = TaskGroups(plan, scores); !groups.empty()) {
    JsonArray over_tasks;
    for (const TaskGroup& group : groups) {
      JsonObject row;
      row.Add("point", group.label).Add("tasks", std::int64_t(group.scores.size()));
      AddInterval(BootstrapInterquartileMean(group.scores), &row);
      over_tasks.Add(row);
    }
    sweep.Add("over_tasks", over_tasks);
  }
  return sweep.Add("runs", rows).str() + "\n";
}

// "Successive halving (ASHA) of steps from 1000 to 27000, eta 3, s 0."
std::string HalvingText(const HalvingSettings& s) {
  return fmt::format("Successive halving (ASHA) of {} from {} to {}, eta {}, s {}.",
                     EnumName(s.resource), s.min_resource, s.max_resource, s.reduction_factor,
                     s.early_stopping_rate);
}

// A sweep without varying keys has one point with an empty label; it gets the sweep's name.
std::string LabelOf(const std::string& point, const std::string& sweep) {
  return point.empty() ? sweep : point;
}

// The bootstrap resamples the given values, so for two of them an interval is their range.
std::string IntervalText(double low, double high, std::size_t seeds) {
  return seeds == 1 ? "– (1 seed)"
                    : fmt::format("{:.2f} to {:.2f}{}", low, high,
                                  seeds == 2 ? " (range of 2 seeds)" : "");
}

// Rows for the points of a sweep over several environments; empty for other sweeps.
std::string TaskTable(const SweepPlan& plan, const SweepScores& scores) {
  const std::vector<TaskGroup> groups = TaskGroups(plan, scores);
  if (groups.empty()) return "";
  std::string table = fmt::format(
      "\n| over {} environments, scores normalized to 0 to 1 in each | IQM | 95 % "
      "interval |\n|---|--:|--:|\n",
      groups[0].scores.size());
  for (const TaskGroup& group : groups) {
    const ScoreInterval m = BootstrapInterquartileMean(group.scores);
    const bool single =
        std::ranges::all_of(group.scores, [](const auto& s) { return s.size() == 1; });
    table += fmt::format("| {} | {:.2f} | {} |\n", LabelOf(group.label, plan.name), m.iqm,
                         single ? "– (1 seed)" : fmt::format("{:.2f} to {:.2f}", m.low, m.high));
  }
  return table;
}

// Trials in descending order of rung and score; those without a score come last.
std::vector<std::size_t> RankedTrials(const SweepScores& scores) {
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&scores](std::size_t a, std::size_t b) {
    const bool has_a = HasMean(scores[a]), has_b = HasMean(scores[b]);
    if (!has_a || !has_b) return has_a && !has_b;
    if (scores[a]->rung != scores[b]->rung) return scores[a]->rung > scores[b]->rung;
    return scores[a]->mean > scores[b]->mean;
  });
  return order;
}

// Scores of different rungs are not comparable, so the rung is the first column.
std::string HalvingTable(const SweepPlan& plan, const SweepScores& scores) {
  std::string table = fmt::format("| | rung | {} | updates | score |\n|---|--:|--:|--:|--:|\n",
                                  StepsName(plan.runs.front().config));
  for (const std::size_t trial : RankedTrials(scores)) {
    const std::optional<SweepScore>& score = scores[trial];
    table += fmt::format("| {} |", LabelOf(plan.points[trial].label, plan.name));
    const char* const failed = score && score->failed ? " (failed later)" : "";
    table += HasMean(score) ? fmt::format(" {} | {} | {} | {:.2f}{} |\n", score->rung, score->steps,
                                          score->updates, score->mean, failed)
                            : fmt::format(" – | – | – | {} |\n", score ? "failed" : "–");
  }
  return table;
}

}  // namespace

// Results of older versions may lack members, which then are 0.
std::optional<SweepScore> ParseScore(std::string_view result_json) {
  const Result<JsonValue> result = ParseJson(result_json);
  if (!result.ok()) return std::nullopt;
  // Only a run that ended with status "ok" and a final evaluation has a score.
  const Result<std::string> status = result->String("status");
  const JsonValue* const mean = result->Find("final_return_mean");
  if (!status.ok() || *status != "ok" || mean == nullptr) return std::nullopt;
  // A score that is not finite was written as null.
  if (mean->kind != JsonValue::Kind::kNumber) return std::nullopt;
  const Result<std::string> version = result->String("version");
  return SweepScore{.mean = mean->number,
                    .std = Number(*result, "final_return_std"),
                    .wall_s = Number(*result, "wall_s"),
                    .low = Number(*result, "final_return_min"),
                    .high = Number(*result, "final_return_max"),
                    .episodes = std::int64_t(Number(*result, "final_episodes")),
                    .steps = std::int64_t(Number(*result, "steps")),
                    .updates = std::int64_t(Number(*result, "updates")),
                    .version = version.ok() ? *version : "unknown"};
}

std::string ScoreLine(const SweepPlan& plan, const SweepScore& score) {
  const std::string spread =
      SpreadText(IsSupervised(plan.runs.front().config),
                 {.return_std = score.std, .return_min = score.low, .return_max = score.high});
  return fmt::format("{:.2f}{}, {:.1f} minutes", score.mean, spread, score.wall_s / 60);
}

std::string TitleOfRun(const SweepPlan& plan, std::size_t run) {
  const std::string& label = plan.points[plan.runs[run].point].label;
  return fmt::format("{}{}seed {}", label, label.empty() ? "" : " ", plan.runs[run].seed);
}

// Results of another config would not be comparable.
Status CheckSameRun(const std::string& path, const Config& there, const Config& wanted) {
  if (there == wanted) return Status::Ok();
  return AlreadyExists(
      "{} holds a run of another config ({}); choose another folder (name=...), or replace all "
      "runs with --overwrite",
      path, FirstDifference(there, wanted));
}

// Columns: label, one per seed, mean, interval, interquartile mean, interval.
std::string SweepTable(const SweepPlan& plan, const SweepScores& scores) {
  if (plan.halving) return HalvingTable(plan, scores);
  std::string table = "| |";
  std::string rule = "|---|";
  for (const std::int64_t seed : plan.seeds) {
    table += fmt::format(" seed {} |", seed);
    rule += "--:|";
  }
  table += " mean | 95 % interval | IQM | 95 % interval |\n" + rule + "--:|--:|--:|--:|\n";
  for (std::size_t point = 0; point < plan.points.size(); ++point) {
    table += fmt::format("| {} |", LabelOf(plan.points[point].label, plan.name));
    for (std::size_t i = 0; i < plan.runs.size(); ++i) {
      // Runs are ordered by seed, so the cells follow the columns.
      if (plan.runs[i].point != point) continue;
      table += scores[i] ? fmt::format(" {:.2f} |", scores[i]->mean) : " – |";
    }
    // The statistics cover finished seeds only; an unfinished seed is a dash.
    const std::vector<double> means = FinishedMeans(plan, scores, point);
    if (means.empty()) {
      table += " – | – | – | – |\n";
      continue;
    }
    const MeanInterval m = BootstrapMean(means);
    const ScoreInterval q = BootstrapInterquartileMean({{means}});
    table += fmt::format(" {:.2f} | {} | {:.2f} | {} |\n", m.mean,
                         IntervalText(m.low, m.high, means.size()), q.iqm,
                         IntervalText(q.low, q.high, means.size()));
  }
  return table + TaskTable(plan, scores);
}

// Three lines: what was run, how it was scored, how the intervals were computed.
std::vector<std::string> SweepCaption(const SweepPlan& plan, const SweepScores& scores) {
  // Runs may have been finished by other versions: the caption names them all.
  std::set<std::string> versions{kTroopVersion};
  for (const auto& score : scores) {
    if (HasMean(score)) versions.insert(score->version);
  }
  const auto finished = std::ranges::count_if(scores, HasMean);
  const Config& first = plan.runs.front().config;
  const ScoreLabels words = GetScoreLabels(first);
  std::vector<std::string> lines = {
      fmt::format("{}: {} {}, {} updates; {} of {} runs finished, seeds {} to {}.",
                  Values(plan, [](const Config& c) { return TaskName(c); }),
                  Range(scores, [](const SweepScore& s) { return s.steps; }), StepsName(first),
                  Range(scores, [](const SweepScore& s) { return s.updates; }), finished,
                  scores.size(), plan.seeds.front(), plan.seeds.back()),
      fmt::format(
          "Scores: {} of the last checkpoint (never the best) over {} {}{}.", words.score,
          Range(scores, [](const SweepScore& s) { return s.episodes; }), words.units,
          IsSupervised(first)
              ? ""
              : fmt::format(" with epsilon {}",
                            Values(plan, [](const Config& c) { return c.evaluator.epsilon; }))),
      fmt::format(
          "{} troop {}.",
          plan.halving
              ? HalvingText(*plan.halving)
              : "Intervals: percentile bootstrap over seeds, 95 %. IQM: interquartile mean.",
          fmt::join(versions, ", "))};
  // Many points can make a line long; the plot has no room for more.
  for (std::string& line : lines) line.resize(std::min(line.size(), kCaptionColumns));
  return lines;
}

// Each file is replaced atomically. The JSON comes first, as the curves are read through it.
Status WriteSweep(Storage* folder, const SweepPlan& plan, const SweepScores& scores) {
  TROOP_RETURN_IF_ERROR(folder->WriteAtomic(kFile, Json(plan, scores)));
  const std::vector<std::string> caption = SweepCaption(plan, scores);
  TROOP_RETURN_IF_ERROR(folder->WriteAtomic(
      "sweep.md", SweepTable(plan, scores) + fmt::format("\n{}\n", fmt::join(caption, "\n"))));
  if (!HasPlots()) return Status::Ok();
  TROOP_ASSIGN_OR_RETURN(const std::vector<CurveGroup> groups,
                         ReadSweepCurves(plan.path, CurveAxis::kSteps));
  LinePlot plot = PlotCurves(groups, CurveAxis::kSteps);
  plot.title = plan.name;
  if (IsSupervised(plan.runs.front().config)) {
    plot.x_label = StepsName(plan.runs.front().config);
    plot.y_label = "accuracy in %";
  }
  plot.caption = caption;
  TROOP_ASSIGN_OR_RETURN(const Buffer picture, DrawLinePlot(plot));
  return folder->WriteAtomic("sweep.png", picture.bytes());
}

Status ReportSweep(Storage* folder, const SweepPlan& plan, const SweepScores& scores) {
  const Status written = WriteSweep(folder, plan, scores);
  fmt::print("\n{}\n", SweepTable(plan, scores));
  for (const std::string& line : SweepCaption(plan, scores)) fmt::print("{}\n", line);
  TROOP_RETURN_IF_ERROR(written);
  fmt::print("wrote {}/sweep.md, {}sweep.json\n", plan.path, HasPlots() ? "sweep.png, " : "");
  if (!HasPlots()) fmt::print("no sweep.png: {}\n", CheckPlots().message());
  return Status::Ok();
}

// One group per point, with the curves of its seeds. Unfinished runs are included up to their
// newest evaluation.
Result<std::vector<CurveGroup>> ReadSweepCurves(const std::string& path, CurveAxis axis) {
  if (!std::filesystem::exists(std::filesystem::path(path) / kFile)) {
    return NotFound("{}: not a run (no config.toml) or a sweep (no {})", path, kFile);
  }
  TROOP_ASSIGN_OR_RETURN(const auto folder, MakeDiskStorage(path));
  TROOP_ASSIGN_OR_RETURN(const Buffer text, folder->Read(kFile, kFileBytesMax));
  TROOP_ASSIGN_OR_RETURN(const JsonValue sweep, ParseJson(text.text()));
  const JsonValue* const runs = sweep.Find("runs");
  const Result<std::string> name = sweep.String("name");
  if (runs == nullptr || !name.ok()) return DataLoss("{}/{} is not a sweep file", path, kFile);
  std::vector<CurveGroup> groups;
  for (const JsonValue& row : runs->array) {
    TROOP_ASSIGN_OR_RETURN(const std::string run, row.String("run"));
    TROOP_ASSIGN_OR_RETURN(const std::string point, row.String("point"));
    // Not started yet.
    if (!folder->Exists(run + "/config.toml")) continue;
    const std::string label = LabelOf(point, *name);
    auto group = std::ranges::find(groups, label, &CurveGroup::label);
    if (group == groups.end()) {
      groups.push_back({.label = label});
      group = groups.end() - 1;
    }
    TROOP_ASSIGN_OR_RETURN(RunCurve curve, ReadRunCurve(path + "/" + run, axis));
    group->runs.push_back(std::move(curve));
  }
  return groups;
}

}  // namespace troop
