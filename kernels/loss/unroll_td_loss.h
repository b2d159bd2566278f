#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/loss/dqn_loss.h"

namespace troop {

// One unroll with its targets, which are constants: no gradient flows into them.
struct UnrollTargets {
  std::int32_t length = 0;
  std::int64_t actions = 0;
  const float* q = nullptr;              // [length + 1, actions]
  const std::int32_t* action = nullptr;  // [length]
  const double* target = nullptr;        // [length]
  double weight = 1;                     // importance weight
  double share = 1;                      // of one step in the batch's loss: 1 / all steps
  bool huber = true;
  double largest_share = 0;  // η of the priority
};

// TD errors td_t = target_t - q_t[action_t] of an unroll. Returns the sums over its steps, not
// means: of weight * l(td), |td| and q.
//   dq: [length + 1, actions], 0 for actions that were not taken and in the last row
//   priority: η max |td| + (1 - η) mean |td| (Kapturowski et al. 2019, section 2.3)
// f32 arrays, f64 between them. O(length actions).
inline DqnLossSummary UnrollTdLoss(const UnrollTargets& in, float* dq, float* priority) {
  for (std::int64_t k = 0; k < (in.length + 1) * in.actions; ++k) dq[k] = 0;
  DqnLossSummary sum;
  double largest = 0;
  for (std::int32_t t = 0; t < in.length; ++t) {
    const std::int64_t at = t * in.actions + in.action[t];
    const double td = in.target[t] - double(in.q[at]);
    const double size = std::abs(td);
    // Beyond the threshold the Huber loss is linear with slope ±1.
    const bool linear = in.huber && size > 1;
    sum.loss += in.weight * (linear ? size - 0.5 : 0.5 * td * td);
    sum.td_error_mean += size;
    sum.q_mean += double(in.q[at]);
    dq[at] = float(-in.weight * (linear ? std::copysign(1.0, td) : td) * in.share);
    // NaN stays NaN.
    if (!(size <= largest)) largest = size;
  }
  const double mean = sum.td_error_mean / double(in.length);
  *priority = float(in.largest_share * largest + (1 - in.largest_share) * mean);
  return sum;
}

}  // namespace troop
