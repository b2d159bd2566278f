#pragma once

#include <cstdint>

namespace troop {

// Inputs of the n-step double-Q loss. B items, A actions, N = the longest item.
struct DqnLossInput {
  std::int64_t batch = 0, actions = 0, steps = 0;
  const float* q = nullptr;              // [B, A] of the first observation, online weights
  const float* q_next_online = nullptr;  // [B, A] of the last observation, online weights;
                                         // nullptr: q_next_target selects the action
  const float* q_next_target = nullptr;  // [B, A] of the last observation, target weights
  const std::int32_t* action = nullptr;  // [B]. REQUIRES: in [0, A)
  const float* reward = nullptr;         // [B, N] raw
  const float* discount = nullptr;       // [B, N] raw: 0 where the step terminated, else 1
  const std::int32_t* length = nullptr;  // [B] in [1, N] valid steps; fewer at a truncation
  const float* weight = nullptr;         // [B] importance weights; nullptr: all 1
  double gamma = 0.99;
  double reward_clip = 0;  // rewards are clipped to ± this value; 0: no clipping
  bool huber = true;       // Huber loss with δ = 1, else half the squared error
};

// Per-item results.
struct DqnLossOutput {
  float* dq = nullptr;        // [B, A] gradient of the loss
  float* priority = nullptr;  // [B] |TD error|
};

// Batch means for metrics.
struct DqnLossSummary {
  double loss = 0;           // mean of weight * l(TD error)
  double td_error_mean = 0;  // mean |TD error|
  double q_mean = 0;         // mean q of the chosen actions
};

// n-step double Q-learning (van Hasselt et al. 2016, eq. 4; Horgan et al. 2018, sec. 3.1 and
// appendix C). With n the item's length and d its discounts:
//   G = Σ_{k<n} γ^k (Π_{j<k} d_j) r_k  +  γ^n (Π_{j<n} d_j) q_next_target[argmax q_next_online]
//   td = G - q[action]
// Ties in the argmax go to the first action. Computed in f64 except for inputs and outputs, one
// item after the other: the same bits on every machine. If a value that an item uses is not finite,
// `loss` is not finite. After a discount of 0 the next observation's q is not used and may be
// anything.
// O(B (A + N)). There is one version for all instruction sets: even for B = 512 and A = 18 it takes
// microseconds, of a training step of milliseconds.
DqnLossSummary DqnLoss(const DqnLossInput& in, const DqnLossOutput& out);

}  // namespace troop
