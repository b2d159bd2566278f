#pragma once

#include <span>
#include <vector>

namespace troop {

// The interquartile mean (IQM): the mean of the middle half of the values. Drops floor(n / 4) of
// the lowest and as many of the highest, as scipy.stats.trim_mean with 0.25, which rliable uses
// (Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice",
// sec. 4.3). Fewer than 4 values: their mean. O(n log n). REQUIRES: not empty; no NaN.
double InterquartileMean(std::vector<double> values);

// The interquartile mean of all scores and its 95 % interval.
struct ScoreInterval {
  double iqm = 0, low = 0, high = 0;
  bool operator==(const ScoreInterval&) const = default;
};
// The interval is the percentile interval of a stratified bootstrap with 10,000 resamples: each
// resample draws, for each stratum (task), as many of its runs as it has, with replacement (Agarwal
// et al. 2021, sec. 4.1). A draw follows from the number of the resample and of the stratum
// (Purpose::kBootstrap), so equal scores give equal intervals. A single run has the interval of its
// score. O(10,000 n log n) for n scores. REQUIRES: not empty, nor is a stratum; no NaN.
ScoreInterval BootstrapInterquartileMean(std::span<const std::vector<double>> strata);

}  // namespace troop
