#pragma once

#include <cstdint>

namespace troop {

// What the n-step double-Q loss is computed from. B items, A actions, N = the longest item.
struct DqnLossInput {
  std::int64_t batch = 0, actions = 0, steps = 0;
  const float* q = nullptr;              // [B, A] of the first observation, newest weights
  const float* q_next_online = nullptr;  // [B, A] of the last observation, newest weights;
                                         // nullptr: no double Q, the target picks its own action
  const float* q_next_target = nullptr;  // [B, A] of the last observation, target weights
  const std::int32_t* action = nullptr;  // [B]. REQUIRES: in [0, A)
  const float* reward = nullptr;         // [B, N] raw
  const float* discount = nullptr;       // [B, N] raw: 0 where the step terminated, else 1
  const std::int32_t* length = nullptr;  // [B] in [1, N]: steps that count; shorter at a truncation
  const float* weight = nullptr;         // [B] importance weights; nullptr: all 1
  double gamma = 0.99;
  double reward_clip = 0;  // rewards are clipped to ±it; 0: not
  bool huber = true;       // Huber with bend at 1, else the squared error / 2
};

struct DqnLossOutput {
  float* dq = nullptr;        // [B, A] gradient of the loss
  float* priority = nullptr;  // [B] |TD error|
};

struct DqnLossSummary {
  double loss = 0;           // mean of weight * l(TD error)
  double td_error_mean = 0;  // mean |TD error|
  double q_mean = 0;         // mean q of the chosen actions
};

// n-step double Q-learning (van Hasselt et al. 2016, eq. 4; Horgan et al. 2018, sec. 3.1 and
// appendix C), with n = the item's length and d the discounts:
//   G = Σ_{k<n} γ^k (Π_{j<k} d_j) r_k  +  γ^n (Π_{j<n} d_j) q_next_target[argmax q_next_online]
//   td = G - q[action]; of equal q the first action is taken.
// In f64 apart from its inputs and outputs, one item after the other: the same bits on every
// machine. A value that is not finite in what an item uses makes `loss` not finite. Behind a
// discount of 0 the next observation's q isn't used, whatever it is. O(B (A + N)); one version:
// even at B = 512, A = 18 it takes a few microseconds beside a step of milliseconds.
DqnLossSummary DqnLoss(const DqnLossInput& in, const DqnLossOutput& out);

}  // namespace troop
