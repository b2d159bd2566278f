// Implements outputs and row gradients of linear models.

#include "nn/sparse/linear_model.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/check.h"

namespace troop {
namespace {

// Cross entropy of the softmax, with the largest output subtracted against overflow.
double SoftmaxLossAndSlopes(std::span<const float> targets, std::span<double> outputs) {
  const double largest = std::ranges::max(outputs);
  double sum = 0, mine = 0;
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    if (targets[k] > 0) mine = outputs[k] - largest;
    sum += outputs[k] = std::exp(outputs[k] - largest);
  }
  for (std::size_t k = 0; k < outputs.size(); ++k)
    outputs[k] = outputs[k] / sum - (targets[k] > 0 ? 1 : 0);
  return std::log(sum) - mine;
}

}  // namespace

// In f64, so that the sum does not depend much on the order of the features.
void LinearOutputs(const LinearForm& form, std::span<const float> weights, const SparseRow& example,
                   std::span<double> outputs) {
  const auto width = std::size_t(form.outputs);
  TROOP_CHECK(std::int64_t(weights.size()) == form.rows() * form.outputs && outputs.size() == width,
              "{} weights and {} outputs of a model of {} by {}", weights.size(), outputs.size(),
              form.rows(), form.outputs);
  const float* const bias = weights.data() + std::size_t(form.features) * width;
  std::copy_n(bias, width, outputs.begin());
  for (std::size_t j = 0; j < example.columns.size(); ++j) {
    const float* const row = weights.data() + std::size_t(example.columns[j]) * width;
    const double x = double(example.values[j]);
    for (std::size_t k = 0; k < width; ++k) outputs[k] += double(row[k]) * x;
  }
}

// One pass gives both, since the losses share their exponentials.
double LinearLossAndSlopes(const LinearForm& form, std::span<const float> targets,
                           std::span<double> outputs) {
  if (form.softmax) return SoftmaxLossAndSlopes(targets, outputs);
  double loss = 0;
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    const double z = outputs[k], y = double(targets[k]);
    loss += LossOf(form.loss, z, y);
    outputs[k] = LossSlope(form.loss, z, y);
  }
  return loss;
}

// The derivative by a weight is its feature times the slope of its output.
double AddLinearGradient(const LinearForm& form, std::span<const float> weights,
                         const LinearExample& example, RowGradientSum* sum) {
  const SparseRow& row = example.row;
  std::vector<double> slopes(static_cast<std::size_t>(form.outputs));
  LinearOutputs(form, weights, row, slopes);
  if (!example.seen.empty()) std::ranges::copy(slopes, example.seen.begin());
  const double loss = LinearLossAndSlopes(form, example.targets, slopes);
  // An example beyond the margin touches no row, which saves its step too.
  if (std::ranges::all_of(slopes, [](double s) { return s == 0; })) return loss;
  const auto add = [&](std::int32_t at, double x) {
    float* const to = sum->Row(at);
    for (std::size_t k = 0; k < slopes.size(); ++k) to[k] += float(example.scale * slopes[k] * x);
  };
  for (std::size_t j = 0; j < row.columns.size(); ++j) {
    if (row.values[j] != 0) add(row.columns[j], double(row.values[j]));
  }
  // The bias is the weight of a feature that is always 1.
  add(std::int32_t(form.features), 1);
  return loss;
}

}  // namespace troop
