#pragma once

#include "kernels/cuda/loss/dqn_loss.h"
#include "kernels/cuda/runtime/device.h"
#include "kernels/loss/categorical_loss.h"
#include "kernels/loss/quantile_loss.h"

// The twins of kernels/loss/categorical_loss.h and kernels/loss/quantile_loss.h: the same formulas
// in f64; only sums are in another order, which depends on the shapes alone. All pointers are
// device memory. Two launches: a block to an item, which combines the heads of a dueling network,
// chooses the last observation's action, makes the target, loss, priority and gradients of the
// heads; and one block for the sums. REQUIRES: 2 <= K <= 1024, A <= 1024.
namespace troop::cuda {

void CategoricalLoss(Stream& stream, const CategoricalLossInput& in, const LossOutput& out,
                     const DuelingValues& values = {});
void QuantileLoss(Stream& stream, const QuantileLossInput& in, const LossOutput& out,
                  const DuelingValues& values = {});

}  // namespace troop::cuda
