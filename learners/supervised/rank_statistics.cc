// Implements statistics of ranks for resampled data, in f64.

#include "learners/supervised/rank_statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace troop {

// Stable, so that the order of equal values is the same on every machine.
ValueOrder::ValueOrder(std::span<const double> values) : order_(values.size()) {
  std::iota(order_.begin(), order_.end(), 0U);
  std::ranges::stable_sort(order_, {}, [&](std::uint32_t i) { return values[i]; });
  for (std::size_t i = 0; i < order_.size(); ++i) {
    if (i == 0 || values[order_[i - 1]] < values[order_[i]]) begins_.push_back(std::uint32_t(i));
  }
  begins_.push_back(std::uint32_t(order_.size()));
}

// A negative example needs its place among the positive values alone, not among all values.
RocCurve::RocCurve(std::span<const double> values, std::span<const std::uint8_t> positive) {
  std::vector<double> sorted;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (positive[i] != 0) sorted.push_back(values[i]);
  }
  if (sorted.empty()) return;
  std::ranges::sort(sorted);
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  bins_ = 3 * sorted.size() + 1;
  bin_.resize(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    // The first positive value that is not below this one.
    const auto at = std::size_t(std::ranges::lower_bound(sorted, values[i]) - sorted.begin());
    const bool equal = at < sorted.size() && sorted[at] == values[i];
    bin_[i] = std::uint32_t(3 * at + (positive[i] != 0 ? 2 : equal ? 1 : 0));
  }
}

// Counts are exact in f64 up to 2^53 pairs.
std::optional<double> RocCurve::Area(std::span<const std::uint32_t> times) const {
  if (bins_ == 0) return std::nullopt;
  std::vector<std::uint64_t> count(bins_);
  for (std::size_t i = 0; i < times.size(); ++i) count[bin_[i]] += times[i];
  // Pairs of a positive example with the negative ones below it, and half of those equal to it.
  double area = 0, positives = 0, negatives = 0;
  for (std::size_t bin = 0; bin + 3 <= bins_; bin += 3) {
    negatives += double(count[bin]);
    area += double(count[bin + 2]) * (negatives + double(count[bin + 1]) / 2);
    negatives += double(count[bin + 1]);
    positives += double(count[bin + 2]);
  }
  negatives += double(count[bins_ - 1]);
  if (positives == 0 || negatives == 0) return std::nullopt;
  return area / (positives * negatives);
}

// Two passes: the means first, so that large offsets do not cancel.
std::optional<double> Correlation(std::span<const double> x, std::span<const double> y,
                                  std::span<const std::uint32_t> times) {
  double n = 0, x_sum = 0, y_sum = 0;
  std::optional<std::size_t> first;
  bool x_varies = false, y_varies = false;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (times[i] == 0) continue;
    if (!first) first = i;
    x_varies |= x[i] != x[*first];
    y_varies |= y[i] != y[*first];
    n += times[i];
    x_sum += times[i] * x[i];
    y_sum += times[i] * y[i];
  }
  if (!x_varies || !y_varies) return std::nullopt;
  const double x_mean = x_sum / n, y_mean = y_sum / n;
  double xx = 0, yy = 0, xy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double dx = x[i] - x_mean, dy = y[i] - y_mean;
    xx += times[i] * dx * dx;
    yy += times[i] * dy * dy;
    xy += times[i] * dx * dy;
  }
  // Squares of very small differences may be 0.
  const double scale = std::sqrt(xx) * std::sqrt(yy);
  if (!(scale > 0)) return std::nullopt;
  return std::clamp(xy / scale, -1.0, 1.0);
}

// A tie of c examples after b smaller ones has the ranks b + 1 to b + c, whose mean is b + (c + 1)
// / 2.
void AverageRanks(const ValueOrder& order, std::span<const std::uint32_t> times,
                  std::span<double> rank) {
  double below = 0;
  order.ForEachTie([&](std::span<const std::uint32_t> tie) {
    double here = 0;
    for (const std::uint32_t i : tie) here += times[i];
    for (const std::uint32_t i : tie) rank[i] = below + (here + 1) / 2;
    below += here;
  });
}

}  // namespace troop
