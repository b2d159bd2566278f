#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/config.h"
#include "core/plot.h"
#include "core/status.h"

namespace troop {

// What curves may be drawn over.
enum class CurveAxis { kSteps, kUpdates, kMinutes };

// The learning curve of one run, as its folder tells it.
struct RunCurve {
  std::string name;
  Config config;
  bool evaluated = true;  // returns of the evaluator; else of training, where there is none
  std::vector<double> xs, returns;  // xs ascend
};
// Evaluations that a later part of the run undid (it went on from an older checkpoint) are left
// out. Errors: kNotFound: no run here; kDataLoss.
Result<RunCurve> ReadRunCurve(const std::string& path, CurveAxis axis);

// The mean of `values` and its 95 % interval by the percentile bootstrap (Efron 1979) with 10,000
// resamples, the same ones each time. Of one value, the interval is that value. REQUIRES: not
// empty.
struct MeanInterval {
  double mean = 0, low = 0, high = 0;
  bool operator==(const MeanInterval&) const = default;
};
MeanInterval BootstrapMean(std::span<const double> values);

// Runs that differ only by their seeds. One of them: a line. More: their mean and its interval over
// where all of them have values, and each of them as a faint line.
struct CurveGroup {
  std::string label;
  std::vector<RunCurve> runs;
};
LinePlot PlotCurves(const std::vector<CurveGroup>& groups, CurveAxis axis);

}  // namespace troop
