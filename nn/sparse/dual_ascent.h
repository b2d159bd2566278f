#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "core/tensor/sparse_rows.h"
#include "nn/sparse/linear_loss.h"

namespace troop {

// Problem of a linear model with one output.
struct DualAscentOptions {
  LinearLoss loss = LinearLoss::kLog;
  double l2 = 1e-4;  // above 0
  double l1 = 0;
};

// Minimizes (1/n) Σ loss(w·x_i, y_i) + l2/2 |w|² + l1 |w|₁ by proximal stochastic dual coordinate
// ascent (Shalev-Shwartz & Zhang 2013, 2014): a step maximizes the dual exactly in the variable of
// one example, so there is no learning rate. Converges linearly; for l1 = 0 it is the method of
// liblinear's dual solvers. One owner thread. Deterministic: the order of the examples is the
// caller's.
class DualAscent {
 public:
  // rows, targets: [n] examples, which outlive this; targets ±1, or numbers for kSquaredError.
  // REQUIRES: equally many, at least one; l2 > 0.
  DualAscent(const DualAscentOptions& options, const SparseRows* rows,
             std::span<const float> targets);
  // A step for each of the examples, in that order. Returns the sum of their losses before their
  // steps. outputs: receives w·x of each example before its step; nullptr: not wanted. O(entries).
  double Pass(std::span<const std::int32_t> examples, std::vector<double>* outputs = nullptr);

  // [width]
  std::span<const float> weights() const { return shrunk_.empty() ? state_.sums : shrunk_; }
  // The part that a checkpoint has to contain.
  struct State {
    std::vector<float> duals;  // [n], of each example
    std::vector<float> sums;   // [width]: Σ duals · x / (l2 n), which the steps have summed up
    bool operator==(const State&) const = default;
  };
  const State& state() const { return state_; }
  // Restores a state exactly. Errors: kInvalidArgument: another number of values, or one that is
  // not finite; nothing was changed then.
  Status SetState(const State& state);
  // The objective at weights(), in f64. O(entries).
  double Objective() const;
  // The dual objective, a lower bound of every objective: their difference bounds the error. O(n).
  double DualObjective() const;

 private:
  double Margin(const SparseRow& row) const;
  double BestDual(std::size_t i, double z) const;
  void Add(const SparseRow& row, float step);

  const DualAscentOptions options_;
  const SparseRows* const rows_;
  const std::vector<float> targets_;
  const double scale_;          // 1 / (l2 n)
  const float threshold_;       // l1 / l2
  std::vector<float> squares_;  // [n] |x_i|²
  State state_;
  std::vector<float> shrunk_;  // [width]: the sums moved towards 0 by threshold_; empty without l1
};

}  // namespace troop
