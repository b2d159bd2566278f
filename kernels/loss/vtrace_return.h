#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/loss/n_step_return.h"

namespace troop {

// One unroll of `length` steps with its off-policy corrections. Step t leads from the observation
// of value[t] to that of value[t + 1].
struct VtraceSteps {
  std::int32_t length = 0;
  const float* reward = nullptr;    // [length], not clipped yet
  const float* discount = nullptr;  // [length], without γ: 0 where the step terminated, else 1
  const double* value = nullptr;    // [length + 1]; the last one is not used after a termination
  const double* ratio = nullptr;    // [length]: π(a_t | s_t) / μ(a_t | s_t)
  double gamma = 0.99;
  double reward_clip = 0;         // rewards are clipped to ± this value; 0: no clipping
  double rho_bar = 1, c_bar = 1;  // bounds of the ratios
  double lambda = 1;              // factor of c_t; 1 in the paper
};

// The smaller of both; NaN stays NaN, so that the loss shows it.
inline double BoundedRatio(double ratio, double bar) { return ratio > bar ? bar : ratio; }

// V-trace (Espeholt et al. 2018, IMPALA, eq. 1), from the last step back:
//   ρ_t = min(ρ̄, ratio_t),  c_t = λ min(c̄, ratio_t)
//   δ_t = ρ_t (r_t + γ d_t V_{t+1} - V_t)
//   v_t = V_t + δ_t + γ d_t c_t (v_{t+1} - V_{t+1}),  v_length = V_length
//   advantage_t = ρ_t (r_t + γ d_t v_{t+1} - V_t)
// With equal policies and λ = 1 the targets v_t are n-step returns; with λ < 1, TD(λ) returns. A
// truncated episode bootstraps from its last observation, since its last discount is 1. target,
// advantage: [length], in f64. O(length).
inline void VtraceReturns(const VtraceSteps& in, double* target, double* advantage) {
  double next = 0;   // v_{t+1}
  double extra = 0;  // v_{t+1} - V_{t+1}
  for (std::int32_t t = in.length - 1; t >= 0; --t) {
    const double reward = ClippedReward(in.reward[t], in.reward_clip);
    const double factor = in.gamma * double(in.discount[t]);
    const double rho = BoundedRatio(in.ratio[t], in.rho_bar);
    const double c = in.lambda * BoundedRatio(in.ratio[t], in.c_bar);
    if (t == in.length - 1 && factor != 0) next = in.value[t + 1];
    // The value after a termination may be anything, even NaN.
    const double ahead = factor == 0 ? 0 : factor * in.value[t + 1];
    advantage[t] = rho * (reward + (factor == 0 ? 0 : factor * next) - in.value[t]);
    extra = rho * (reward + ahead - in.value[t]) + (factor == 0 ? 0 : factor * c * extra);
    next = in.value[t] + extra;
    target[t] = next;
  }
}

}  // namespace troop
