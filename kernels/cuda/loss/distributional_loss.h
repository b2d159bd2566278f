#pragma once

#include "kernels/cuda/loss/dqn_loss.h"
#include "kernels/cuda/runtime/device.h"
#include "kernels/loss/categorical_loss.h"
#include "kernels/loss/quantile_loss.h"

// GPU counterparts of kernels/loss/categorical_loss.h and kernels/loss/quantile_loss.h. The
// formulas are the same, in f64; only the order of sums differs, and depends only on the shapes.
// All pointers are device memory. Two launches: one block per item, which combines the heads of a
// dueling network, selects the bootstrap action and computes target, loss, priority and the
// gradients of the heads; then one block that adds the sums. REQUIRES: 2 <= K <= 1024, A <= 1024.
namespace troop::cuda {

void CategoricalLoss(Stream& stream, const CategoricalLossInput& in, const LossOutput& out,
                     const DuelingValues& values = {});
void QuantileLoss(Stream& stream, const QuantileLossInput& in, const LossOutput& out,
                  const DuelingValues& values = {});

}  // namespace troop::cuda
