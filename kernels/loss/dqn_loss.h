#pragma once

#include <cstdint>

namespace troop {

// Inputs of the n-step double-Q loss: B = batch items, A = actions, N = steps, the largest length
// of an item.
struct DqnLossInput {
  std::int64_t batch = 0, actions = 0, steps = 0;
  const float* q = nullptr;              // [B, A] of the first observation, online weights
  const float* q_next_online = nullptr;  // [B, A] of the last observation, online weights;
                                         // nullptr: q_next_target selects the action
  const float* q_next_target = nullptr;  // [B, A] of the last observation, target weights
  const std::int32_t* action = nullptr;  // [B]. REQUIRES: in [0, A)
  const float* reward = nullptr;         // [B, N], not clipped yet
  const float* discount = nullptr;       // [B, N], without γ: 0 where the step terminated, else 1
  const std::int32_t* length = nullptr;  // [B]: valid steps, 1 to N; fewer at an episode's end
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
// Ties in the argmax go to the first action. The arrays are f32; everything between them is
// computed in f64, one item after another, so the result has the same bits on every machine. If a
// value that an item uses is not finite, `loss` is not finite. If one of an item's discounts is 0,
// its q_next values are not used and may be anything, even NaN.
// O(B (A + N)). One version serves all instruction sets: even for B = 512 and A = 18 it takes
// microseconds, and a training step takes milliseconds.
DqnLossSummary DqnLoss(const DqnLossInput& in, const DqnLossOutput& out);

}  // namespace troop
