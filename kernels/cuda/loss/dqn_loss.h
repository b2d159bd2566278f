#pragma once

#include "kernels/cuda/runtime/device.h"
#include "kernels/cuda/runtime/precision.h"
#include "kernels/loss/dqn_loss.h"

namespace troop::cuda {

// Value heads of a dueling network (Wang et al. 2016, eq. 9), [B, K] f32. The q, logits or
// quantiles of a loss input are then the advantages a [B, A, K]. The loss combines v + a - mean
// over actions of a itself, in f64, which saves separate passes before and after it.
struct DuelingValues {
  const float* first = nullptr;        // first observation; nullptr: not dueling
  const float* last_target = nullptr;  // last observation, target weights
  // Last observation, online weights; nullptr if the input has none. Only CategoricalLoss reads it:
  // if the mean of the values selects the action, v and mean(a) are equal for all actions and do
  // not matter.
  const float* last_online = nullptr;
};

// Outputs of the losses.
struct LossOutput {
  DType dtype = DType::kF32;  // of the gradients: kF32, or kBF16 (rounded) as backward takes it
  void* dq = nullptr;         // [B, A, K], with respect to the q of the input
  void* dvalue = nullptr;     // [B, K], with respect to v; only if dueling
  float* priority = nullptr;  // [B] |TD error|
  DqnLossSummary* summary = nullptr;
  double* partial = nullptr;  // [3 B] scratch; not used by DqnLoss
};

// GPU counterpart of kernels/loss/dqn_loss.h: the same formulas in f64; only the order of the sums
// of the summary differs, and depends only on the batch size. All pointers are device memory. One
// launch of one block, since a batch is a few hundred items of a few steps; it computes the loss,
// the gradients of the heads and the priorities in one pass. O(B (A + N)).
void DqnLoss(Stream& stream, const DqnLossInput& in, const LossOutput& out,
             const DuelingValues& values = {});

}  // namespace troop::cuda
