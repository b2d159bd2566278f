#pragma once

#include "kernels/loss/dqn_loss.h"
#include "learners/training_config.h"
#include "nn/models/value_head.h"
#include "replay/codec/sample_batch.h"

namespace troop {

// Network outputs for a batch. B items, A actions, K values per action value.
struct ValuesOfBatch {
  std::int64_t actions = 1;
  const float* first = nullptr;          // [B, A, K] of the first observations, online network
  const float* last_target = nullptr;    // [B, A, K] of the last observations, target network
  const float* last_online = nullptr;    // the same, online network (double Q); nullptr: plain Q
  const std::int32_t* action = nullptr;  // [B]
};

// Computes config.learner's n-step loss for values of this form, its gradient with respect to
// `first`, and the new priorities: kernels/loss/dqn_loss.h, categorical_loss.h (no Huber loss) or
// quantile_loss.h (κ = 1). out.dq: [B, A, K].
DqnLossSummary TdLoss(const TrainingConfig& config, const ValueHead& form, const SampleBatch& batch,
                      const ValuesOfBatch& values, const DqnLossOutput& out);

}  // namespace troop
