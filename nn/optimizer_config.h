#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/config/enum_names.h"

namespace troop {

class ConfigVisitor;

// The optimizers; all but kLbfgs (nn/lbfgs/lbfgs.h) step with gradients of random batches.
enum class OptimizerType : std::uint8_t { kAdam, kRmsProp, kSgd, kAdaGrad, kRAdam, kLbfgs };
constexpr auto EnumNames(OptimizerType) {
  return std::to_array<std::string_view>({"adam", "rmsprop", "sgd", "adagrad", "radam", "lbfgs"});
}

// Courses of the learning rate after the warm-up: a line, half a cosine (Loshchilov & Hutter 2017,
// eq. 5, without restarts), or a factor at each milestone.
enum class LrSchedule : std::uint8_t { kLinear, kCosine, kStep };
constexpr auto EnumNames(LrSchedule) {
  return std::to_array<std::string_view>({"linear", "cosine", "step"});
}

// The optimizer ([optimizer]).
struct OptimizerConfig {
  OptimizerType type = OptimizerType::kAdam;
  double learning_rate = 1e-3;
  double policy_learning_rate = 0;  // dpg, td3, sac; 0: same as learning_rate
  LrSchedule lr_schedule = LrSchedule::kLinear;
  double final_lr_fraction = 1;       // linear, cosine: final fraction of the learning rate
  std::vector<double> lr_milestones;  // step: shares of the run, rising
  double lr_milestone_factor = 0.1;   // step: factor at each milestone
  double warmup_ratio = 0;            // fraction of the run in which the learning rate rises
  double beta1 = 0.9, beta2 = 0.999;
  double decay = 0.95;   // rmsprop
  bool centered = true;  // rmsprop
  double momentum = 0;   // sgd
  double epsilon = 1e-8;
  double weight_decay = 0;         // adam, radam: decoupled (AdamW); sgd: coupled
  std::int64_t history_size = 10;  // lbfgs: pairs of changes
  double tolerance_grad = 1e-5;    // lbfgs: gradient norm that ends the search
  bool operator==(const OptimizerConfig&) const = default;
};
// Declares the keys.
void VisitKeys(OptimizerConfig& config, ConfigVisitor& visitor);

}  // namespace troop
