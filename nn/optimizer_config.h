#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/config/enum_names.h"

namespace troop {

class ConfigVisitor;

// The optimizers.
enum class OptimizerType : std::uint8_t { kAdam, kRmsProp, kSgd, kAdaGrad, kRAdam };
constexpr auto EnumNames(OptimizerType) {
  return std::to_array<std::string_view>({"adam", "rmsprop", "sgd", "adagrad", "radam"});
}

// The optimizer ([optimizer]).
struct OptimizerConfig {
  OptimizerType type = OptimizerType::kAdam;
  double learning_rate = 1e-3;
  double policy_learning_rate = 0;  // dpg, td3, sac; 0: same as learning_rate
  double final_lr_fraction = 1;     // final fraction of the learning rate, reached linearly
  double warmup_ratio = 0;          // fraction of the run in which the learning rate rises
  double beta1 = 0.9, beta2 = 0.999;
  double decay = 0.95;   // rmsprop
  bool centered = true;  // rmsprop
  double momentum = 0;   // sgd
  double epsilon = 1e-8;
  double weight_decay = 0;  // decoupled (AdamW)
  bool operator==(const OptimizerConfig&) const = default;
};
// Declares the keys.
void VisitKeys(OptimizerConfig& config, ConfigVisitor& visitor);

}  // namespace troop
