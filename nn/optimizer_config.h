#pragma once

#include <string>

namespace troop {

class ConfigVisitor;

// The optimizer ([optimizer]).
struct OptimizerConfig {
  std::string type = "adam";  // "adam" | "rmsprop" | "sgd" | "adagrad"
  double learning_rate = 1e-3;
  double policy_learning_rate = 0;  // dpg; 0: same as learning_rate
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
