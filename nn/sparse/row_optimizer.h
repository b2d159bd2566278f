#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/config/enum_names.h"
#include "nn/sparse/row_gradient.h"

namespace troop {

// Optimizers of rows. Each changes only the rows of a gradient.
//   kSgd      w -= η g
//   kAdaGrad  s += g², w -= η g / (√s + ε) (Duchi et al. 2011)
//   kFtrl     FTRL-proximal with L1 and L2 (McMahan et al. 2013, algorithm 1), where α = η
//   kAdam     lazy Adam: the rule of Adam, but the moments of other rows do not decay; the bias
//             corrections count all steps
enum class RowRule : std::uint8_t { kSgd, kAdaGrad, kFtrl, kAdam };
constexpr auto EnumNames(RowRule) {
  return std::to_array<std::string_view>({"sgd", "adagrad", "ftrl", "adam"});
}

// Settings of a RowOptimizer.
struct RowOptimizerOptions {
  RowRule rule = RowRule::kSgd;
  double epsilon = 1e-8;              // adagrad, adam
  double beta1 = 0.9, beta2 = 0.999;  // adam
  double beta = 1;                    // ftrl
  double l1 = 0, l2 = 0;              // ftrl: λ1 and λ2 of the paper
};

// Applies row gradients to a matrix [rows, width]. The state of a row is created when the row first
// has a gradient. One owner thread. Deterministic.
class RowOptimizer {
 public:
  RowOptimizer(const RowOptimizerOptions& options, std::int64_t rows, std::int64_t width);
  // Makes a step with that learning rate. value: [rows, width]. O(gradient's values). REQUIRES: the
  // gradient has the width of the matrix, and no row at or above `rows`.
  void Step(const RowGradient& gradient, double learning_rate, std::span<float> value);

  // The state of the rows so far, for checkpoints. Values: [rows.size(), slots,
  // width], as AdaGrad: s; FTRL: z, n; Adam: m, v.
  struct State {
    std::int64_t steps = 0;
    std::vector<std::int32_t> rows;  // in the order of their creation
    std::vector<float> values;
    bool operator==(const State&) const = default;
  };
  const State& state() const { return state_; }
  // Restores a state. Errors: kInvalidArgument: a row outside the matrix or twice, or another
  // number of values; nothing was changed then.
  Status SetState(const State& state);

 private:
  std::size_t slots() const;
  float* StateOf(std::int32_t row);
  void StepRow(const float* gradient, double learning_rate, float* state, float* value) const;

  const RowOptimizerOptions options_;
  const std::int64_t width_;
  std::vector<std::int32_t> place_;  // [rows] index in state_.rows; -1: no state
  State state_;
};

}  // namespace troop
