#pragma once

#include <cstdint>

#include "kernels/loss/dqn_loss.h"

namespace troop {

// Inputs of the sequence loss: B = unrolls, A = actions. The unrolls' frames are consecutive rows
// of q: `length` + 1 of each, the last one only for its bootstrap value. F: their sum.
struct SequenceQLossInput {
  std::int64_t batch = 0, actions = 0;
  const float* q = nullptr;         // [F, A], online weights
  const float* q_target = nullptr;  // [F, A], target weights
  // Values of the steps, `stride` per unroll, of which `length` are used.
  std::int64_t stride = 0;
  const std::int32_t* action = nullptr;  // REQUIRES: in [0, A) in the steps of an unroll
  const float* reward = nullptr;         // not clipped yet
  const float* discount = nullptr;       // without γ: 0 where the step terminated, else 1
  const std::int32_t* length = nullptr;  // [B]: at least 1
  const float* weight = nullptr;         // [B] importance weights
  double gamma = 0.997;
  std::int64_t n_step = 5;
  double reward_clip = 0;      // rewards are clipped to ± this value; 0: no clipping
  bool double_q = true;        // q selects the bootstrap action; false: q_target
  bool rescale = true;         // values are rescaled by h (value_rescaling.h)
  bool huber = false;          // Huber loss with δ = 1, else half the squared error
  double largest_share = 0.9;  // η of the priorities
};

// n-step double Q-learning over sequences (R2D2, Kapturowski et al. 2019, section 2.3). With n the
// smaller of n_step and the steps that are left in the unroll:
//   G_t = h(Σ_{k<n} γ^k (Π_{j<k} d_{t+j}) r_{t+k} + γ^n (Π_{j<n} d_{t+j}) h⁻¹(q_target_{t+n}[a*]))
//   td_t = G_t - q_t[action_t],  a* = argmax_a q_{t+n}[a]
// The loss is the mean over all steps of weight * l(td), so that long and short unrolls count by
// their steps. As in DqnLoss, arrays are f32, all between them is f64, and a value that is used and
// not finite makes `loss` not finite; values after a termination are not used.
//   out.dq: [F, A], 0 in the last row of each unroll
//   out.priority: [B], η max |td| + (1 - η) mean |td|
// Returns the means over all steps. O(F (A + n)).
DqnLossSummary SequenceQLoss(const SequenceQLossInput& in, const DqnLossOutput& out);

}  // namespace troop
