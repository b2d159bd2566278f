#pragma once

#include <cstdint>
#include <span>

#include "kernels/loss/dqn_loss.h"

namespace troop {

// Where the atoms of a categorical value lie: K equally far apart from low to high.
struct ValueSupport {
  std::int64_t atoms = 51;
  double low = -150, high = 150;
  double gap() const { return (high - low) / double(atoms - 1); }
  double atom(std::int64_t k) const { return low + gap() * double(k); }
};

// What the n-step loss of categorical values is computed from: of all actions (C51, Bellemare et
// al. 2017, algorithm 1), or of one alone, a critic's (Barth-Maron et al. 2018, sec. 3). B items, A
// actions, K atoms, N = the longest item.
struct CategoricalLossInput {
  std::int64_t batch = 0, actions = 1, steps = 0;
  ValueSupport support;
  const float* logits = nullptr;         // [B, A, K] of the first observation
  const float* logits_target = nullptr;  // [B, A, K] of the last observation, target weights
  // [B, A, K] of the last observation, newest weights, whose means choose its action (double Q);
  // nullptr: those of logits_target do. Of equal means the first action is taken.
  const float* logits_online = nullptr;
  const std::int32_t* action = nullptr;  // [B] in [0, A); nullptr: 0
  const float* reward = nullptr;         // as DqnLossInput's, like all that follows
  const float* discount = nullptr;
  const std::int32_t* length = nullptr;
  const float* weight = nullptr;
  double gamma = 0.99;
  double reward_clip = 0;
};

// dq: [B, A, K] gradient of the loss by the logits. priority: [B], |mean of the target distribution
// - mean of the critic's|. The loss: mean of weight * cross-entropy between the target's
// distribution, moved by the return, clipped to the support and projected onto the atoms, and the
// critic's. Numerics as DqnLoss: f64 inside, one item after the other; not finite where an item is
// not; behind a discount of 0 the last observation's logits aren't used. O(B (A K + N)).
DqnLossSummary CategoricalLoss(const CategoricalLossInput& in, const DqnLossOutput& out);

// Means of softmax(logits): [B, K] → q [B].
void ExpectedValues(const ValueSupport& support, std::int64_t batch, const float* logits, float* q);
// scale * dq/dlogits: [B, K].
void ExpectedValueGradient(const ValueSupport& support, std::int64_t batch, const float* logits,
                           double scale, float* dlogits);

}  // namespace troop
