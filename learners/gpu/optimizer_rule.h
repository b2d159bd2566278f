#pragma once

#include "learners/gpu/cuda/optimizer_step.h"
#include "learners/training_config.h"

namespace troop {

// The config's optimizer in the form that GPU kernels use. REQUIRES: optimizer.type is not
// "adagrad".
inline cuda::OptimizerRule MakeOptimizerRule(const TrainingConfig& config) {
  using Kind = cuda::OptimizerRule::Kind;
  const OptimizerType type = config.optimizer.type;
  return {.max_grad_norm = config.learner.max_grad_norm,
          .kind = type == OptimizerType::kRmsProp ? Kind::kRmsProp
                  : type == OptimizerType::kSgd   ? Kind::kSgd
                                                  : Kind::kAdam,
          .rectified = type == OptimizerType::kRAdam,
          .beta1 = config.optimizer.beta1,
          .beta2 = config.optimizer.beta2,
          .decay = config.optimizer.decay,
          .centered = config.optimizer.centered,
          .momentum = config.optimizer.momentum,
          .epsilon = config.optimizer.epsilon,
          .weight_decay = config.optimizer.weight_decay};
}

}  // namespace troop
