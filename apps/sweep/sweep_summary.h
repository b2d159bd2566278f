#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/sweep/sweep_grid.h"
#include "core/storage/storage.h"
#include "fleet/run/learning_curve.h"

namespace troop {

// Result of a finished run: the score of its last checkpoint, not of its best one.
struct SweepScore {
  double mean = 0, std = 0, wall_s = 0;
  double low = 0, high = 0;  // extremes over episodes; 95 % interval of an accuracy
  std::int64_t episodes = 0, steps = 0, updates = 0;
  std::string version;  // of the program that finished the run
  // Successive halving: the last rung that the trial completed, and true if it failed in the next
  // one. Without a completed rung `mean` is NaN.
  std::size_t rung = 0;
  bool failed = false;
  bool operator==(const SweepScore&) const = default;
};
// Parses a run's result.json; nullopt if the run is not finished, or its score is not a number.
std::optional<SweepScore> ParseScore(std::string_view result_json);
// "487.50 ± 12.10, 3.2 minutes".
std::string ScoreLine(const SweepPlan& plan, const SweepScore& score);
// Name of a run for messages: the label of its point, if there is one, and the seed.
std::string TitleOfRun(const SweepPlan& plan, std::size_t run);
// Errors: kAlreadyExists: the folder `path` holds the run of another config, with the first line in
// which it differs from `wanted`.
Status CheckSameRun(const std::string& path, const Config& there, const Config& wanted);

// In the order of plan.runs; nullopt: not finished.
using SweepScores = std::vector<std::optional<SweepScore>>;

// A Markdown table. Successive halving: a row per trial, by rung and score. Else a row per point:
// the score of each seed, their mean and its interval. For two seeds the interval is labeled as
// their range; for one seed there is none.
std::string SweepTable(const SweepPlan& plan, const SweepScores& scores);
// Caption below the table and the plot: problem, budget and evaluation. ASCII; lines of at most 150
// characters.
std::vector<std::string> SweepCaption(const SweepPlan& plan, const SweepScores& scores);
// Writes sweep.json (from which `troop plot` reads the groups of runs), sweep.md and, in a
// build with plots, sweep.png to the sweep folder.
Status WriteSweep(Storage* folder, const SweepPlan& plan, const SweepScores& scores);

// WriteSweep, and prints the table, the caption and the names of the files.
Status ReportSweep(Storage* folder, const SweepPlan& plan, const SweepScores& scores);

// Reads the curves of all started runs in sweep.json, grouped by point. Errors: kNotFound: not a
// sweep folder; kDataLoss.
Result<std::vector<CurveGroup>> ReadSweepCurves(const std::string& path, CurveAxis axis);

}  // namespace troop
