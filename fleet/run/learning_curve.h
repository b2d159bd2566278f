#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/graphics/plot/line_plot.h"
#include "fleet/config/config.h"

namespace troop {

// The x axis of a learning curve.
enum class CurveAxis { kSteps, kUpdates, kMinutes };

// The learning curve of one run, read from its folder.
struct RunCurve {
  std::string name;
  Config config;
  bool evaluated = true;  // evaluator returns; false: training returns, without an evaluator
  std::vector<double> xs, returns;  // xs ascend
};
// Reads the curve. Evaluations that a resume from an older checkpoint undid are left out. Errors:
// kNotFound: not a run folder; kDataLoss.
Result<RunCurve> ReadRunCurve(const std::string& path, CurveAxis axis);

// The mean of `values` and its 95 % interval by the percentile bootstrap (Efron 1979) with 10,000
// resamples from a fixed seed. For one value the interval is that value. REQUIRES: not empty.
struct MeanInterval {
  double mean = 0, low = 0, high = 0;
  bool operator==(const MeanInterval&) const = default;
};
MeanInterval BootstrapMean(std::span<const double> values);

// Runs that differ only in their seeds. A single run is drawn as a line; several as their mean and
// its interval over the range that all of them cover, and each run as a faint line.
struct CurveGroup {
  std::string label;
  std::vector<RunCurve> runs;
};
// Builds the plot of all groups, one color per group.
LinePlot PlotCurves(const std::vector<CurveGroup>& groups, CurveAxis axis);

}  // namespace troop
