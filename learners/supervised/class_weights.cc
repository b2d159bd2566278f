// Implements class weights, and their form as factors of a batch's rows.

#include "learners/supervised/class_weights.h"

#include <algorithm>
#include <numeric>

namespace troop {

// Counts first, then one quotient for each class; classes between the labels may be empty.
std::vector<float> BalancedClassWeights(std::span<const std::int32_t> labels) {
  std::vector<std::int64_t> counts;
  for (const std::int32_t label : labels) {
    if (label < 0) continue;
    if (std::size_t(label) >= counts.size()) counts.resize(std::size_t(label) + 1);
    ++counts[std::size_t(label)];
  }
  const auto n = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  const auto present = std::ranges::count_if(counts, [](std::int64_t count) { return count > 0; });
  // A class without examples has no row that could use its weight.
  std::vector<float> weights;
  for (const std::int64_t count : counts) {
    weights.push_back(count == 0 ? 0.0f : float(double(n) / (double(present) * double(count))));
  }
  return weights;
}

// Every learner computes the mean of the whole batch, in the same order, so that the factors are
// equal on all of them.
std::vector<float> RowWeights(std::span<const float> weights, std::span<const std::int32_t> whole,
                              std::span<const std::int32_t> labels) {
  std::vector<float> rows;
  if (weights.empty() || whole.empty()) return rows;
  double sum = 0;
  for (const std::int32_t label : whole) sum += double(weights[std::size_t(label)]);
  const double mean = sum / double(whole.size());
  for (const std::int32_t label : labels) {
    rows.push_back(float(double(weights[std::size_t(label)]) / mean));
  }
  return rows;
}

}  // namespace troop
