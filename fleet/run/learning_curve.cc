// Reads learning curves from run folders and averages them over seeds.
#include "fleet/run/learning_curve.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "core/base/check.h"
#include "core/base/philox.h"
#include "core/storage/json.h"
#include "core/storage/storage.h"
#include "fleet/run/metric_names.h"
#include "fleet/run/run_directory.h"

namespace troop {
namespace {

constexpr std::size_t kFileBytesMax = std::size_t{1} << 30;  // size of one JSON-lines file
constexpr int kResamples = 10'000;
constexpr int kMeanPoints = 100;  // evenly spaced points of a mean curve

// The x value of one JSON line; nullopt if it has none.
std::optional<double> PositionOf(const JsonValue& line, CurveAxis axis) {
  const char* const key = axis == CurveAxis::kMinutes ? "wall_s"
                          : axis == CurveAxis::kSteps ? "steps"
                                                      : "updates";
  const JsonValue* value = line.Find(key);
  if (value == nullptr && axis == CurveAxis::kUpdates) value = line.Find("learner/updates");
  if (value == nullptr) return std::nullopt;
  return axis == CurveAxis::kMinutes ? value->number / 60 : value->number;
}

// The return of one JSON line; nullopt if it has none. Training lines count once an episode ended.
std::optional<double> ReturnOf(const JsonValue& line, bool evaluated) {
  if (!evaluated) {
    const JsonValue* const episodes = line.Find("actor/episodes");
    if (episodes == nullptr || episodes->number == 0) return std::nullopt;
  }
  const JsonValue* const value = line.Find(evaluated ? "return_mean" : "episode_return_mean");
  if (value == nullptr || value->kind != JsonValue::Kind::kNumber) return std::nullopt;
  return value->number;
}

// Linear interpolation. REQUIRES: `x` is within the curve.
// Runs have their points at different positions, hence the interpolation.
double At(const RunCurve& curve, double x) {
  const auto after = std::ranges::lower_bound(curve.xs, x);
  const auto i = std::size_t(after - curve.xs.begin());
  if (i == 0) return curve.returns[0];
  if (i == curve.xs.size()) return curve.returns.back();
  const double width = curve.xs[i] - curve.xs[i - 1];
  const double t = width > 0 ? (x - curve.xs[i - 1]) / width : 1;
  return curve.returns[i - 1] + t * (curve.returns[i] - curve.returns[i - 1]);
}

// The mean of a group, at evenly spaced points of the range that all its runs cover.
LinePlot::Series MeanOf(const CurveGroup& group) {
  LinePlot::Series series{.name = group.label};
  if (group.runs.size() == 2)
    series.name += " (range of 2)";  // the bootstrap interval of two values is their range
  double first = -std::numeric_limits<double>::infinity(), last = -first;
  for (const RunCurve& run : group.runs) {
    if (run.xs.empty()) return series;
    first = std::max(first, run.xs.front());
    last = std::min(last, run.xs.back());
  }
  // No points if the runs do not overlap; one if they share a single x.
  const int points = first < last ? kMeanPoints : first == last ? 1 : 0;
  for (int i = 0; i < points; ++i) {
    const double x = first + (last - first) * i / (kMeanPoints - 1);
    std::vector<double> values;
    for (const RunCurve& run : group.runs) values.push_back(At(run, x));
    const MeanInterval interval = BootstrapMean(values);
    series.xs.push_back(x);
    series.ys.push_back(interval.mean);
    series.low.push_back(interval.low);
    series.high.push_back(interval.high);
  }
  return series;
}

}  // namespace

// A run without an evaluator has the curve of its training returns.
Result<RunCurve> ReadRunCurve(const std::string& path, CurveAxis axis) {
  TROOP_ASSIGN_OR_RETURN(Config config, ReadRunConfig(path, {}));
  RunCurve curve{.name = config.name, .config = std::move(config)};
  curve.evaluated = curve.config.evaluator.enabled;
  TROOP_ASSIGN_OR_RETURN(const auto storage, MakeDiskStorage(path));
  const char* const file = curve.evaluated ? "evaluations.jsonl" : "metrics.jsonl";
  if (!storage->Exists(file)) return curve;  // no evaluation yet
  TROOP_ASSIGN_OR_RETURN(const Buffer bytes, storage->Read(file, kFileBytesMax));
  std::string_view text = bytes.text();
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const Result<JsonValue> line = ParseMetricsLine(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.ok()) continue;  // incomplete line of a killed writer
    const std::optional<double> x = PositionOf(*line, axis), y = ReturnOf(*line, curve.evaluated);
    if (!x || !y) continue;
    // A smaller x means that the run was resumed from an older checkpoint: drop what it undid.
    while (!curve.xs.empty() && curve.xs.back() > *x) {
      curve.xs.pop_back();
      curve.returns.pop_back();
    }
    curve.xs.push_back(*x);
    curve.returns.push_back(*y);
  }
  return curve;
}

// Draws resamples with replacement and takes the 2.5 % and 97.5 % quantiles of their means.
// Percentile interval: Efron and Tibshirani 1993, ch. 13.
MeanInterval BootstrapMean(std::span<const double> values) {
  TROOP_CHECK(!values.empty(), "the mean of no values");
  const auto mean_of = [&](auto&& next) {
    double sum = 0;
    for (std::size_t i = 0; i < values.size(); ++i) sum += values[next(i)];
    return sum / double(values.size());
  };
  const double mean = mean_of([](std::size_t i) { return i; });
  if (values.size() == 1) return {mean, mean, mean};
  // The seed depends only on the number of values, so equal input gives equal intervals.
  Rng rng({.purpose = Purpose::kEvaluation, .index = values.size()});
  std::vector<double> means(kResamples);
  for (double& m : means) {
    m = mean_of([&](std::size_t) { return rng.Below(std::uint32_t(values.size())); });
  }
  std::ranges::sort(means);
  const auto quantile = [&](double share) { return means[std::size_t(share * (kResamples - 1))]; };
  return {mean, quantile(0.025), quantile(0.975)};
}

LinePlot PlotCurves(const std::vector<CurveGroup>& groups, CurveAxis axis) {
  LinePlot plot{.x_label = axis == CurveAxis::kSteps     ? "agent steps"
                           : axis == CurveAxis::kUpdates ? "updates"
                                                         : "minutes",
                .y_label = "return"};
  // Faint lines come first, so that means are drawn on top. The y label names the kind of return
  // only if all runs agree.
  bool all_evaluated = true, none_evaluated = true;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const CurveGroup& group = groups[i];
    for (const RunCurve& run : group.runs) {
      (run.evaluated ? none_evaluated : all_evaluated) = false;
      if (group.runs.size() < 2) continue;
      plot.series.push_back({.xs = run.xs, .ys = run.returns, .faint = true, .color = int(i)});
    }
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const CurveGroup& group = groups[i];
    LinePlot::Series series;
    if (group.runs.size() == 1) {
      series = {.name = group.label, .xs = group.runs[0].xs, .ys = group.runs[0].returns};
    } else {
      series = MeanOf(group);
    }
    series.color = int(i);
    plot.series.push_back(std::move(series));
  }
  if (!groups.empty() && all_evaluated) plot.y_label = "evaluated return";
  if (!groups.empty() && none_evaluated) plot.y_label = "training return";
  return plot;
}

}  // namespace troop
