#pragma once

#include <cstdint>

#include "kernels/loss/dqn_loss.h"

namespace troop {

// Inputs of the Q(λ) loss: B = unrolls, A = actions, S = steps, the largest length of an unroll.
// The unrolls' frames are consecutive rows of q: `length` + 1 of each, the last one only for its
// bootstrap value. F: their sum.
struct QLambdaLossInput {
  std::int64_t batch = 0, actions = 0, steps = 0;
  const float* q = nullptr;              // [F, A]
  const std::int32_t* action = nullptr;  // [B, S]. REQUIRES: in [0, A) in the steps of an unroll
  const float* reward = nullptr;         // [B, S], not clipped yet
  const float* discount = nullptr;       // [B, S], without γ: 0 where the step terminated, else 1
  const std::int32_t* length = nullptr;  // [B]: 1 to S
  const float* weight = nullptr;         // [B] importance weights
  double gamma = 0.99;
  double lambda = 0.65;
  double reward_clip = 0;  // rewards are clipped to ± this value; 0: no clipping
  bool huber = true;       // Huber loss with δ = 1, else half the squared error
};

// Q(λ) (Gallici et al. 2024, "Simplifying Deep Temporal Difference Learning", algorithm 1):
//   td_t = G_t - q_t[action_t], with the λ-returns G_t of the values max_a q_{t+1}[a]
// The returns are constants: no gradient flows into them. The loss is the mean over all steps of
// weight * l(td), so that long and short unrolls count by their steps. As in DqnLoss, arrays are
// f32, all between them is f64, and a value that is used and not finite makes `loss` not finite.
//   out.dq: [F, A], 0 in the last row of each unroll
//   out.priority: [B], the unroll's mean |td|
// Returns the means over all steps. O(F A).
DqnLossSummary QLambdaLoss(const QLambdaLossInput& in, const DqnLossOutput& out);

}  // namespace troop
