#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/curve.h"
#include "apps/sweep_plan.h"
#include "core/storage.h"

namespace troop {

// What a finished run says of itself: the score of its last checkpoint, never of its best.
struct SweepScore {
  double mean = 0, std = 0, wall_s = 0;
  double low = 0, high = 0;  // of episodes the extremes, of a share its 95 % interval
  std::int64_t episodes = 0, steps = 0, updates = 0;
  std::string version;  // of the `troop` that ended it
  bool operator==(const SweepScore&) const = default;
};
// Of a run's result.json; nothing where the run is not finished.
std::optional<SweepScore> ParseScore(std::string_view result_json);

// In the order of plan.runs; nothing: not finished.
using SweepScores = std::vector<std::optional<SweepScore>>;

// A Markdown table: a row a point, with every seed's score, their mean and its interval; of two
// seeds it is marked as their range, of one there is none.
std::string SweepTable(const SweepPlan& plan, const SweepScores& scores);
// What the scores are of, for below the table and the picture. ASCII; lines of at most 150
// characters.
std::vector<std::string> SweepCaption(const SweepPlan& plan, const SweepScores& scores);
// sweep.json (which also tells `troop plot` which runs belong together), sweep.md and sweep.png in
// the sweep's folder.
Status WriteSweep(Storage* folder, const SweepPlan& plan, const SweepScores& scores);

// The runs of a sweep's folder by its points, as its sweep.json lists them, those that have begun.
// Errors: kNotFound: no sweep; kDataLoss.
Result<std::vector<CurveGroup>> ReadSweepCurves(const std::string& path, CurveAxis axis);

}  // namespace troop
