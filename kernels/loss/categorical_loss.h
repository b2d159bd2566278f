#pragma once

#include <cstdint>
#include <span>

#include "kernels/loss/dqn_loss.h"

namespace troop {

// Support of a categorical value distribution: `atoms` values, equally spaced from low to high.
struct ValueSupport {
  std::int64_t atoms = 51;
  double low = -150, high = 150;
  double gap() const { return (high - low) / double(atoms - 1); }
  double atom(std::int64_t k) const { return low + gap() * double(k); }
};

// Inputs of the n-step loss of categorical values: over all actions (C51, Bellemare et al. 2017,
// algorithm 1), or for a critic with one value distribution, where A is 1 (D4PG, Barth-Maron et al.
// 2018, sec. 3). B items, A actions, K atoms, N = the longest item.
struct CategoricalLossInput {
  std::int64_t batch = 0, actions = 1, steps = 0;
  ValueSupport support;
  const float* logits = nullptr;         // [B, A, K] of the first observation
  const float* logits_target = nullptr;  // [B, A, K] of the last observation, target weights
  // [B, A, K] of the last observation, online weights. Their means select the bootstrap action
  // (double Q); nullptr: the means of logits_target do. Ties go to the first action.
  const float* logits_online = nullptr;
  const std::int32_t* action = nullptr;  // [B] in [0, A); nullptr: 0
  const float* reward = nullptr;         // from here on as in DqnLossInput
  const float* discount = nullptr;
  const std::int32_t* length = nullptr;
  const float* weight = nullptr;
  double gamma = 0.99;
  double reward_clip = 0;
};

// Computes the C51 loss: the mean over items of
//   weight * cross-entropy(target distribution, predicted distribution).
// The target distribution is the bootstrap distribution shifted by the return, clipped to the
// support and projected onto the atoms.
// dq: [B, A, K], gradient with respect to the logits. priority: [B], |mean of the target - mean of
// the prediction|.
// Numerics as in DqnLoss: f64 internally, one item after the other; the loss is not finite if an
// item is not. After a discount of 0 the logits of the last observation are not used. O(B (A K +
// N)).
DqnLossSummary CategoricalLoss(const CategoricalLossInput& in, const DqnLossOutput& out);

// q [B] = means of softmax(logits) over the support; logits: [B, K].
void ExpectedValues(const ValueSupport& support, std::int64_t batch, const float* logits, float* q);
// dlogits [B, K] = scale * dq/dlogits, with q as above.
void ExpectedValueGradient(const ValueSupport& support, std::int64_t batch, const float* logits,
                           double scale, float* dlogits);

}  // namespace troop
