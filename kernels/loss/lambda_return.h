#pragma once

#include <cstdint>

#include "kernels/loss/n_step_return.h"

namespace troop {

// One unroll: `length` consecutive steps of an episode. Step t leads to the observation whose
// bootstrap value is value[t].
struct UnrollSteps {
  std::int32_t length = 0;
  const float* reward = nullptr;    // [length], not clipped yet
  const float* discount = nullptr;  // [length], without γ: 0 where the step terminated, else 1
  const double* value = nullptr;    // [length]; not used where the discount is 0
  double gamma = 0.99;
  double reward_clip = 0;  // rewards are clipped to ± this value; 0: no clipping
};

// λ-returns (Sutton and Barto 2018, eq. 12.3, in their recursive form), from the last step back:
//   G_t = r_t + γ d_t ((1 - λ) v_t + λ G_{t+1}),  G_length = v_{length-1}
// λ = 0: one-step targets; λ = 1: the discounted rewards and the last bootstrap value. A truncated
// episode bootstraps from its last observation, since its last discount is 1. result: [length], in
// f64. O(length).
inline void LambdaReturns(const UnrollSteps& in, double lambda, double* result) {
  double next = 0;
  for (std::int32_t t = in.length - 1; t >= 0; --t) {
    const double reward = ClippedReward(in.reward[t], in.reward_clip);
    const double factor = in.gamma * double(in.discount[t]);
    // The value after a termination may be anything, even NaN.
    if (factor == 0) {
      next = reward;
    } else {
      const double after = t == in.length - 1 ? in.value[t] : next;
      next = reward + factor * ((1 - lambda) * in.value[t] + lambda * after);
    }
    result[t] = next;
  }
}

}  // namespace troop
