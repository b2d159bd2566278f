#pragma once

#include "core/config.h"
#include "kernels/dqn_loss.h"
#include "nn/value_form.h"
#include "replay/sample.h"

namespace troop {

// What networks say of a batch. B items, A actions, K numbers to a value.
struct ValuesOfBatch {
  std::int64_t actions = 1;
  const float* first = nullptr;          // [B, A, K] of the first observations, newest weights
  const float* last_target = nullptr;    // [B, A, K] of the last ones, target weights
  const float* last_online = nullptr;    // the same, newest weights (double Q); nullptr: none
  const std::int32_t* action = nullptr;  // [B]
};

// The n-step loss of config.learner for values of this form, its gradient by `first` and new
// priorities: kernels/dqn_loss.h, categorical_loss.h (which has no Huber loss) or quantile_loss.h
// (κ = 1). out.dq: [B, A, K].
DqnLossSummary TdLoss(const Config& config, const ValueForm& form, const SampleBatch& batch,
                      const ValuesOfBatch& values, const DqnLossOutput& out);

}  // namespace troop
