// Interquartile mean and its stratified bootstrap interval.
#include "apps/sweep/score_interval.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/check.h"
#include "core/base/philox.h"

namespace troop {
namespace {

constexpr std::size_t kResamples = 10'000;
constexpr double kLowShare = 0.025, kHighShare = 0.975;

// Quantile of sorted values with linear interpolation, as numpy.percentile.
double QuantileOf(const std::vector<double>& sorted, double share) {
  const double at = share * double(sorted.size() - 1);
  const auto below = std::size_t(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - double(below)) * (sorted[above] - sorted[below]);
}

// Resample `number` of all strata, one after the other.
std::vector<double> Resample(std::span<const std::vector<double>> strata, std::size_t number) {
  std::vector<double> values;
  for (std::size_t stratum = 0; stratum < strata.size(); ++stratum) {
    const std::vector<double>& runs = strata[stratum];
    Rng rng({.purpose = Purpose::kBootstrap, .index = stratum, .episode = number});
    for (std::size_t i = 0; i < runs.size(); ++i) {
      values.push_back(runs[rng.Below(std::uint32_t(runs.size()))]);
    }
  }
  return values;
}

}  // namespace

// Sorted, so that the sum does not depend on the order of the values.
double InterquartileMean(std::vector<double> values) {
  TROOP_CHECK(!values.empty(), "the mean of no values");
  std::ranges::sort(values);
  const auto cut = std::ptrdiff_t(values.size() / 4);
  const auto begin = values.begin() + cut, end = values.end() - cut;
  return std::accumulate(begin, end, 0.0) / double(end - begin);
}

ScoreInterval BootstrapInterquartileMean(std::span<const std::vector<double>> strata) {
  std::vector<double> all;
  for (const std::vector<double>& runs : strata) {
    TROOP_CHECK(!runs.empty(), "a stratum without runs");
    all.insert(all.end(), runs.begin(), runs.end());
  }
  const double iqm = InterquartileMean(all);
  // With one run per stratum every resample is the same.
  if (all.size() == strata.size()) return {iqm, iqm, iqm};
  std::vector<double> resampled(kResamples);
  for (std::size_t i = 0; i < kResamples; ++i) {
    resampled[i] = InterquartileMean(Resample(strata, i));
  }
  std::ranges::sort(resampled);
  return {iqm, QuantileOf(resampled, kLowShare), QuantileOf(resampled, kHighShare)};
}

}  // namespace troop
