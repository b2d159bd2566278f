#pragma once

#include "kernels/categorical_loss.h"
#include "kernels/cuda/device.h"
#include "kernels/quantile_loss.h"

// The twins of kernels/categorical_loss.h and kernels/quantile_loss.h: the same formulas in f64;
// only sums are in another order, which depends on the shapes alone. All pointers, the summary's as
// well, are device memory. partial: [3 B] f64 of scratch. Two launches: a block to an item, which
// chooses the last observation's action, makes the target, loss, priority and gradient in one pass
// over each array; and one block for the sums. REQUIRES: 2 <= K <= 1024, A <= 1024.
namespace troop::cuda {

void CategoricalLoss(Stream& stream, const CategoricalLossInput& in, const DqnLossOutput& out,
                     double* partial, DqnLossSummary* summary);
void QuantileLoss(Stream& stream, const QuantileLossInput& in, const DqnLossOutput& out,
                  double* partial, DqnLossSummary* summary);

}  // namespace troop::cuda
