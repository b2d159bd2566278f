#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/simd/cpu_features.h"

namespace troop {

// Adam (Kingma & Ba 2015, algorithm 1) with decoupled weight decay (Loshchilov & Hutter 2019):
//   g = gradient * gradient_scale;  value -= learning_rate * weight_decay * value
//   m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g²
//   value -= step_size * m / (sqrt(v) * root_scale + epsilon)
// with step_size = learning_rate / (1 - beta1^t) and root_scale = 1 / sqrt(1 - beta2^t).
// RAdam is this step with other factors (SetAdamFactors), so both have the same kernels.
struct AdamStep {
  float gradient_scale = 1;
  float beta1 = 0.9f, one_minus_beta1 = 0.1f;
  float beta2 = 0.999f, one_minus_beta2 = 0.001f;
  float step_size = 0, root_scale = 1, epsilon = 1e-8f;
  float decay_factor = 1;  // 1 - learning_rate * weight_decay
};

// Settings of Adam and RAdam, constant for a run.
struct AdamSettings {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  bool rectified = false;  // true: RAdam
};
// RAdam divides by the root of v only if the length rho of v's average exceeds this value. It is
// the default of PyTorch and optax; Liu et al. have 4.
inline constexpr double kRectifiedLength = 5;
// Sets step_size, root_scale and epsilon for step t, counted from 1, in f64. RAdam (Liu et al.
// 2020, algorithm 2) has the lengths
//   rho_inf = 2 / (1 - beta2) - 1;  rho = rho_inf - 2 t beta2^t / (1 - beta2^t)
// Above kRectifiedLength, Adam's step_size is multiplied by
//   sqrt((rho - 4) (rho - 2) rho_inf / ((rho_inf - 4) (rho_inf - 2) rho))
// Otherwise root_scale is 0 and epsilon 1, so that the divisor is exactly 1 and step_size * m is
// subtracted; a v that overflowed to infinity makes such a step NaN. The length is close to t: with
// beta2 = 0.999, step 6 is the first that divides. With beta2 <= 2/3, no step does.
void SetAdamFactors(const AdamSettings& settings, double t, double learning_rate, AdamStep* step);

// RMSProp, centered (Graves 2013, eq. 38-42, without momentum) or not:
//   m = decay * m + (1 - decay) * g;  v = decay * v + (1 - decay) * g²
//   value -= learning_rate * g / sqrt(max(v - m², 0) + epsilon)   (not centered: m = 0)
// v - m² is a variance; only rounding can make it negative.
struct RmsPropStep {
  float gradient_scale = 1;
  float decay = 0.95f, one_minus_decay = 0.05f;
  float learning_rate = 0, epsilon = 1e-8f;
  float decay_factor = 1;  // 1 - learning_rate * weight_decay
};

// SGD, with PyTorch's momentum (no dampening) or without. The weight decay is coupled, as in
// PyTorch and in the papers of AlexNet and ResNet: its gradient passes through the momentum.
//   g = gradient * gradient_scale + weight_decay * value
//   m = momentum * m + g;  value -= learning_rate * m   (without momentum: m = g)
struct SgdStep {
  float gradient_scale = 1;
  float momentum = 0;
  float learning_rate = 0;
  float weight_decay = 0;
};

// AdaGrad (Duchi et al. 2011), with ε outside the root like PyTorch:
//   v = v + g²;  value -= learning_rate * g / (sqrt(v) + epsilon)
struct AdaGradStep {
  float gradient_scale = 1;
  float learning_rate = 0, epsilon = 1e-10f;
};

// Function table. [n] each. Every level gives the same bits: the updates are elementwise without
// fused multiply-add, and sum_squares adds exact f64 squares in a fixed order of 32 partial sums.
// Any alignment. O(n), one pass over memory.
struct OptimizerKernels {
  void (*adam)(const AdamStep& step, std::int64_t n, const float* gradient, float* m, float* v,
               float* value);
  // m: nullptr when not centered.
  void (*rmsprop)(const RmsPropStep& step, std::int64_t n, const float* gradient, float* m,
                  float* v, float* value);
  // m: nullptr without momentum.
  void (*sgd)(const SgdStep& step, std::int64_t n, const float* gradient, float* m, float* value);
  void (*adagrad)(const AdaGradStep& step, std::int64_t n, const float* gradient, float* v,
                  float* value);
  // sum += weight * x, with two roundings. A weight of 1 adds x itself.
  void (*add_scaled)(std::int64_t n, float weight, const float* x, float* sum);
  // Σ x². Not finite if and only if an element is not: squares of f32 cannot overflow f64.
  double (*sum_squares)(std::int64_t n, const float* x);
};
const OptimizerKernels& OptimizerKernelsFor(CpuLevel level);

}  // namespace troop
