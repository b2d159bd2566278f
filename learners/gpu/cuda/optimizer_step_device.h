#pragma once

#include "kernels/cuda/runtime/device_code.h"
#include "learners/gpu/cuda/optimizer_step.h"

// Device code, for .cu files only.
namespace troop::cuda {

// Sets step_size, root_scale and epsilon as SetAdamFactors does on the CPU (kernels/optim).
TROOP_DEVICE void SetFactors(const OptimizerRule& rule, double t, float rate, AdamStep* step) {
  const double power2 = pow(rule.beta2, t), rest2 = 1 - power2;
  const double size = double(rate) / (1 - pow(rule.beta1, t));
  step->step_size = float(size);
  step->root_scale = float(1 / sqrt(rest2));
  step->epsilon = float(rule.epsilon);
  if (!rule.rectified) return;
  // RAdam: a step either has a factor or does not divide.
  const double limit = 2 / (1 - rule.beta2) - 1, length = limit - 2 * t * power2 / rest2;
  if (length > kRectifiedLength) {
    step->step_size = float(
        size * sqrt((length - 4) * (length - 2) * limit / ((limit - 4) * (limit - 2) * length)));
  } else {
    step->root_scale = 0, step->epsilon = 1;
  }
}

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
    s->adam.gradient_scale = scale;
    s->adam.beta1 = float(rule.beta1), s->adam.one_minus_beta1 = float(1 - rule.beta1);
    s->adam.beta2 = float(rule.beta2), s->adam.one_minus_beta2 = float(1 - rule.beta2);
    s->adam.decay_factor = decay;
    SetFactors(rule, t, rate, &s->adam);
  }
  s->rmsprop = {scale, float(rule.decay), float(1 - rule.decay), rate, float(rule.epsilon), decay};
  s->sgd = {scale, float(rule.momentum), rate, float(rule.weight_decay)};
}

}  // namespace troop::cuda
