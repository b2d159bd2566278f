#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/config/enum_names.h"
#include "nn/sparse/linear_loss.h"

namespace troop {

class ConfigVisitor;

// Solver of a linear model: dual ascent (nn/sparse/dual_ascent.h), or a row optimizer with the
// learning rate of [optimizer] (nn/sparse/row_optimizer.h).
enum class LinearSolver : std::uint8_t { kDualAscent, kFtrl, kSgd, kAdaGrad, kAdam };
constexpr auto EnumNames(LinearSolver) {
  return std::to_array<std::string_view>({"dual_ascent", "ftrl", "sgd", "adagrad", "adam"});
}

// The objective of a linear model, and its solver ([linear]).
struct LinearConfig {
  LinearSolver solver = LinearSolver::kDualAscent;
  LinearLoss loss = LinearLoss::kSquaredHinge;
  double l2 = 1e-4, l1 = 0;  // dual_ascent and ftrl
  bool naive_bayes = false;  // NB-SVM
  double smoothing = 1;      // of naive_bayes
  bool operator==(const LinearConfig&) const = default;
};
// Declares the keys.
void VisitKeys(LinearConfig& config, ConfigVisitor& visitor);

}  // namespace troop
