// Scores of a sweep as a table, JSON and plot.
#include "apps/sweep/sweep_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

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

// Scores of the finished runs of one point.
std::vector<double> FinishedMeans(const SweepPlan& plan, const SweepScores& scores,
                                  std::size_t point) {
  std::vector<double> means;
  for (std::size_t i = 0; i < plan.runs.size(); ++i) {
    if (plan.runs[i].point == point && scores[i]) means.push_back(scores[i]->mean);
  }
  return means;
}

// "7", or "5 to 9" if the runs differ.
template <class F>
std::string Range(const SweepScores& scores, F value) {
  std::set<std::int64_t> values;
  for (const auto& score : scores) {
    if (score) values.insert(value(*score));
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

// One run as a JSON object of sweep.json.
JsonObject RowOf(const SweepPlan& plan, const SweepRun& run,
                 const std::optional<SweepScore>& score) {
  JsonObject row;
  row.Add("run", run.config.name)
      .Add("point", plan.points[run.point].label)
      .Add("seed", run.seed)
      .Add("epsilon", run.config.evaluator.epsilon)
      .Add("finished", score.has_value());
  // An unfinished run has no score members, so that readers can tell it from a score of 0.
  if (!score) return row;
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

// sweep.json: the points with their intervals, and the runs.
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
    }
    points.Add(point);
  }
  return JsonObject().Add("name", plan.name).Add("points", points).Add("runs", rows).str() + "\n";
}

// A sweep without varying keys has one point with an empty label; it gets the sweep's name.
std::string LabelOf(const std::string& point, const std::string& sweep) {
  return point.empty() ? sweep : point;
}

}  // namespace

// Results of older versions may lack members, which then are 0.
std::optional<SweepScore> ParseScore(std::string_view result_json) {
  const Result<JsonValue> result = ParseJson(result_json);
  if (!result.ok()) return std::nullopt;
  // Only a run that ended with status "ok" and a final evaluation has a score.
  const Result<std::string> status = result->String("status");
  if (!status.ok() || *status != "ok" || result->Find("final_return_mean") == nullptr) {
    return std::nullopt;
  }
  const Result<std::string> version = result->String("version");
  return SweepScore{.mean = Number(*result, "final_return_mean"),
                    .std = Number(*result, "final_return_std"),
                    .wall_s = Number(*result, "wall_s"),
                    .low = Number(*result, "final_return_min"),
                    .high = Number(*result, "final_return_max"),
                    .episodes = std::int64_t(Number(*result, "final_episodes")),
                    .steps = std::int64_t(Number(*result, "steps")),
                    .updates = std::int64_t(Number(*result, "updates")),
                    .version = version.ok() ? *version : "unknown"};
}

// Columns: label, one per seed, mean, interval.
std::string SweepTable(const SweepPlan& plan, const SweepScores& scores) {
  std::string table = "| |";
  std::string rule = "|---|";
  for (const std::int64_t seed : plan.seeds) {
    table += fmt::format(" seed {} |", seed);
    rule += "--:|";
  }
  table += " mean | 95 % interval |\n" + rule + "--:|--:|\n";
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
      table += " – | – |\n";
      continue;
    }
    const MeanInterval m = BootstrapMean(means);
    // The bootstrap resamples the given values, so for two of them the interval is their range.
    table += means.size() == 1
                 ? fmt::format(" {:.2f} | – (1 seed) |\n", m.mean)
                 : fmt::format(" {:.2f} | {:.2f} to {:.2f}{} |\n", m.mean, m.low, m.high,
                               means.size() == 2 ? " (range of 2 seeds)" : "");
  }
  return table;
}

// Three lines: what was run, how it was scored, how the intervals were computed.
std::vector<std::string> SweepCaption(const SweepPlan& plan, const SweepScores& scores) {
  // Runs may have been finished by other versions: the caption names them all.
  std::set<std::string> versions{kTroopVersion};
  for (const auto& score : scores) {
    if (score) versions.insert(score->version);
  }
  const auto finished = std::ranges::count_if(scores, [](const auto& s) { return s.has_value(); });
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
      fmt::format("Intervals: percentile bootstrap of the mean over seeds, 95 %. troop {}.",
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
