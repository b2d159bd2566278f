#pragma once

#include <algorithm>
#include <cstdint>

namespace troop {

// n-step return of an item without its bootstrap value, and the factor of that value:
//   sum = Σ_{k<n} γ^k (Π_{j<k} d_j) r_k,  factor = γ^n Π_{j<n} d_j
struct NStepReturn {
  double sum = 0, factor = 1;
};

// Clips a reward to ± limit; limit 0: no clipping. NaN stays NaN, so that the loss shows it.
inline double ClippedReward(double reward, double limit) {
  return limit > 0 ? std::clamp(reward, -limit, limit) : reward;
}

// Computes the return. reward, discount: [length], raw. reward_clip 0: no clipping. O(length).
inline NStepReturn SumNSteps(const float* reward, const float* discount, std::int32_t length,
                             double gamma, double reward_clip) {
  NStepReturn n;
  for (std::int32_t k = 0; k < length; ++k) {
    n.sum += n.factor * ClippedReward(reward[k], reward_clip);
    n.factor *= gamma * double(discount[k]);
  }
  return n;
}

}  // namespace troop
