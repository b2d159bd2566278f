#pragma once

#include "kernels/cuda/runtime/device_code.h"
#include "learners/gpu/cuda/optimizer_step.h"

// Device code, for .cu files only.
namespace troop::cuda {

// Computes the coefficients of the next step with a gradient of that norm, as nn/optimizer.cc and
// learners/train_state.cc do on the CPU.
TROOP_DEVICE void NextStep(const OptimizerRule& rule, double norm, OptimizerState* s) {
  if (s->go != 0) ++s->steps;
  const double t = double(s->steps);
  const double clip =
      rule.max_grad_norm > 0 && norm > rule.max_grad_norm ? rule.max_grad_norm / norm : 1;
  const auto scale = float(clip);
  const auto rate = float(s->learning_rate);
  const auto decay = float(1 - double(rate) * rule.weight_decay);
  if (rule.kind ==
      OptimizerRule::Kind::kAdam) {  // only when needed: pow is slower than all the rest
    s->adam = {scale,
               float(rule.beta1),
               float(1 - rule.beta1),
               float(rule.beta2),
               float(1 - rule.beta2),
               float(double(rate) / (1 - pow(rule.beta1, t))),
               float(1 / sqrt(1 - pow(rule.beta2, t))),
               float(rule.epsilon),
               decay};
  }
  s->rmsprop = {scale, float(rule.decay), float(1 - rule.decay), rate, float(rule.epsilon), decay};
  s->sgd = {scale, float(rule.momentum), rate};
}

}  // namespace troop::cuda
