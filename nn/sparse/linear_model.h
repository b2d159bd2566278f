#pragma once

#include <cstdint>
#include <span>

#include "core/tensor/sparse_rows.h"
#include "nn/sparse/linear_loss.h"
#include "nn/sparse/row_gradient.h"

namespace troop {

// Form of a linear model and its loss. The weights are one matrix [features + 1, outputs], row by
// row, so that an example touches whole rows; its last row is the bias.
struct LinearForm {
  std::int64_t features = 0;
  std::int64_t outputs = 1;  // 1: two classes or a number; else one per class
  LinearLoss loss = LinearLoss::kLog;
  // With several outputs and kLog. True: cross entropy of their softmax; false: one-vs-rest, the
  // sum of the outputs' losses.
  bool softmax = false;

  std::int64_t rows() const { return features + 1; }
};

// Computes the outputs [outputs] of an example. weights: [rows, outputs]. O(entries · outputs).
// REQUIRES: the example's columns are below form.features.
void LinearOutputs(const LinearForm& form, std::span<const float> weights, const SparseRow& example,
                   std::span<double> outputs);
// The loss of outputs [outputs] for targets [outputs]: ±1 of each class (softmax: one is 1), or
// numbers. Replaces the outputs by the loss's derivatives.
double LinearLossAndSlopes(const LinearForm& form, std::span<const float> targets,
                           std::span<double> outputs);
// An example of a batch.
struct LinearExample {
  SparseRow row;
  std::span<const float> targets;  // [outputs]
  double scale = 1;                // factor of its gradient, such as 1 / batch size
  std::span<double> seen = {};     // [outputs] receives the outputs; empty: not wanted
};
// Adds the gradient of scale · loss of the example to `sum`, a row for each entry that is not 0 and
// one for the bias, and returns the loss. sum: of form.rows() rows of form.outputs.
double AddLinearGradient(const LinearForm& form, std::span<const float> weights,
                         const LinearExample& example, RowGradientSum* sum);

}  // namespace troop
