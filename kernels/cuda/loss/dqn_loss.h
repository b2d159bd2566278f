#pragma once

#include "kernels/cuda/runtime/device.h"
#include "kernels/cuda/runtime/precision.h"
#include "kernels/loss/dqn_loss.h"

namespace troop::cuda {

// The values of a dueling network (Wang et al. 2016, eq. 9), [B, K] f32 beside what a loss's input
// calls q, logits or quantiles, which are the advantages a [B, A, K] then: the loss itself makes
// v + a - mean over actions of a of them, in f64, and no pass over them comes before or behind it.
struct DuelingValues {
  const float* first = nullptr;        // of the first observation; nullptr: no dueling network
  const float* last_target = nullptr;  // of the last one, target weights
  // Of the last one, newest weights; or nullptr with the input's. Read by CategoricalLoss alone:
  // where a mean of the numbers chooses, v and mean(a) are the same for all actions.
  const float* last_online = nullptr;
};

// Where the losses put what they make.
struct LossOutput {
  DType dtype = DType::kF32;  // of the gradients: kF32, or rounded to kBF16, as backward takes them
  void* dq = nullptr;         // [B, A, K], by what the input calls q
  void* dvalue = nullptr;     // [B, K], by v: of a dueling network
  float* priority = nullptr;  // [B] |TD error|
  DqnLossSummary* summary = nullptr;
  double* partial = nullptr;  // [3 B] of scratch; DqnLoss needs none
};

// The twin of kernels/loss/dqn_loss.h: the same formulas in f64, apart from the sums of the
// summary, whose order depends on the batch alone. All pointers are device memory. One launch of
// one block: a batch is a few hundred items of a few steps. Heads to loss, gradients of heads and
// priorities in one pass. O(B (A + N)).
void DqnLoss(Stream& stream, const DqnLossInput& in, const LossOutput& out,
             const DuelingValues& values = {});

}  // namespace troop::cuda
