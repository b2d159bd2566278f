#pragma once

#include <cstdint>
#include <span>

#include "core/tensor/sparse_rows.h"
#include "nn/sparse/linear_model.h"

namespace troop {

// The objective of a linear model, as batch methods minimize it:
//   scale · Σ loss(example) + l2/2 |weights without the bias|²
struct LinearObjective {
  LinearForm form;
  const SparseRows* rows = nullptr;  // [n, features]
  std::span<const float> targets;    // [n, outputs]
  double scale = 1;                  // such as 1 / n
  double l2 = 0;
};

// Examples first to last - 1.
struct ExampleRange {
  std::int64_t first = 0, last = 0;
};

// Adds the gradient of the scaled loss of the examples to `gradient`, in their order, and
// returns that loss. weights, gradient: [form.rows(), outputs]. seen: receives the outputs of these
// examples [last - first, outputs]; empty: not wanted. O(entries · outputs). REQUIRES: 0 <= first
// <= last <= n.
double AddLinearLoss(const LinearObjective& objective, const ExampleRange& examples,
                     std::span<const float> weights, std::span<double> gradient,
                     std::span<double> seen = {});
// Adds the gradient of the penalty, and returns the penalty. O(weights).
double AddLinearPenalty(const LinearObjective& objective, std::span<const float> weights,
                        std::span<double> gradient);

}  // namespace troop
