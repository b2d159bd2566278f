#pragma once

#include <cstdint>

#include "kernels/loss/dqn_loss.h"

namespace troop {

// Inputs of the n-step quantile regression loss (QR-DQN, Dabney et al. 2018, algorithm 1). B items,
// A actions, K quantiles at τ_k = (k + 1/2) / K, N = the longest item.
struct QuantileLossInput {
  std::int64_t batch = 0, actions = 1, quantiles = 0, steps = 0;
  double kappa = 1;                 // threshold of the Huber loss; 0: the plain quantile loss
  const float* quantile = nullptr;  // [B, A, K] of the first observation
  const float* quantile_target = nullptr;  // [B, A, K] of the last observation, target weights
  // [B, A, K] of the last observation, online weights. Their means select the bootstrap action
  // (double Q); nullptr: the means of quantile_target do. Ties go to the first action.
  const float* quantile_online = nullptr;
  const std::int32_t* action = nullptr;  // [B] in [0, A); nullptr: 0
  const float* reward = nullptr;         // from here on as in DqnLossInput
  const float* discount = nullptr;
  const std::int32_t* length = nullptr;
  const float* weight = nullptr;
  double gamma = 0.99;
  double reward_clip = 0;
};

// With u_kj = G + γ^n d θ'_j - θ_k, the mean over items of
//   weight * Σ_k 1/K Σ_j |τ_k - 1{u_kj < 0}| H(u_kj),  H(u) = u²/(2κ), |u| - κ/2 beyond κ  (eq. 10)
// dq: [B, A, K], gradient with respect to `quantile`. priority: [B], |mean of the target - mean of
// θ|. Computed in f64 except for inputs and outputs, one item after the other; the loss is not
// finite if an item is not. After a discount of 0 the quantiles of the last observation are not
// used. O(B (A K + K² + N)).
DqnLossSummary QuantileLoss(const QuantileLossInput& in, const DqnLossOutput& out);

}  // namespace troop
