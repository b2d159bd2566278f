// Implements naive Bayes weights of features.

#include "nn/sparse/naive_bayes.h"

#include <cmath>
#include <numeric>

#include "core/base/check.h"

namespace troop {

// Sums in f64: f32 counts end at 2^24.
std::vector<float> NaiveBayesRatios(const SparseRows& rows, std::span<const float> targets,
                                    double smoothing) {
  TROOP_CHECK(rows.size() == std::ssize(targets), "{} rows, {} targets", rows.size(),
              targets.size());
  // Step 1: the smoothed counts of each class, eq. 1: p and q.
  std::vector<double> positive(std::size_t(rows.width), smoothing), other = positive;
  for (std::int64_t i = 0; i < rows.size(); ++i) {
    std::vector<double>& sums = targets[std::size_t(i)] > 0 ? positive : other;
    const SparseRow row = rows.row(i);
    for (std::size_t j = 0; j < row.columns.size(); ++j)
      sums[std::size_t(row.columns[j])] += double(row.values[j]);
  }
  // Step 2: their shares of all counts, and the logarithm of the ratio.
  const double all_positive = std::accumulate(positive.begin(), positive.end(), 0.0);
  const double all_other = std::accumulate(other.begin(), other.end(), 0.0);
  std::vector<float> ratios;
  for (std::size_t j = 0; j < positive.size(); ++j)
    ratios.push_back(float(std::log(positive[j] / all_positive / (other[j] / all_other))));
  return ratios;
}

void ScaleColumns(std::span<const float> factors, SparseRows* rows) {
  for (std::size_t j = 0; j < rows->columns.size(); ++j)
    rows->values[j] *= factors[std::size_t(rows->columns[j])];
}

}  // namespace troop
