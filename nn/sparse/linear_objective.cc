// Implements the objective of batch methods for linear models.

#include "nn/sparse/linear_objective.h"

#include <algorithm>
#include <vector>

namespace troop {

// In f64 and in a fixed order, so that equal ranges give equal bits.
double AddLinearLoss(const LinearObjective& objective, const ExampleRange& examples,
                     std::span<const float> weights, std::span<double> gradient,
                     std::span<double> seen) {
  const auto width = std::size_t(objective.form.outputs);
  std::vector<double> outputs(width);
  double sum = 0;
  for (std::int64_t i = examples.first; i < examples.last; ++i) {
    const SparseRow row = objective.rows->row(i);
    LinearOutputs(objective.form, weights, row, outputs);
    if (!seen.empty())
      std::ranges::copy(outputs, seen.begin() + (i - examples.first) * std::ptrdiff_t(width));
    // The outputs become slopes.
    const auto targets = objective.targets.subspan(std::size_t(i) * width, width);
    sum += objective.scale * LinearLossAndSlopes(objective.form, targets, outputs);
    const auto add = [&](std::size_t at, double factor) {
      double* const to = gradient.data() + at * width;
      for (std::size_t k = 0; k < width; ++k) to[k] += factor * outputs[k];
    };
    for (std::size_t j = 0; j < row.columns.size(); ++j)
      add(std::size_t(row.columns[j]), objective.scale * double(row.values[j]));
    add(std::size_t(objective.form.features), objective.scale);
  }
  return sum;
}

// The bias is not penalized, as in scikit-learn's LogisticRegression.
double AddLinearPenalty(const LinearObjective& objective, std::span<const float> weights,
                        std::span<double> gradient) {
  const auto count = std::size_t(objective.form.features * objective.form.outputs);
  double squares = 0;
  for (std::size_t i = 0; i < count; ++i) {
    squares += double(weights[i]) * double(weights[i]);
    gradient[i] += objective.l2 * double(weights[i]);
  }
  return objective.l2 / 2 * squares;
}

}  // namespace troop
