#pragma once

#include "kernels/cuda/device.h"
#include "kernels/dqn_loss.h"

namespace troop::cuda {

// The twin of kernels/dqn_loss.h: the same formulas in f64, apart from the sums of the summary,
// whose order depends on the batch alone. All pointers, the summary's as well, are device memory.
// One launch of one block: a batch is a few hundred items of a few steps. Loss, gradient and
// priorities in one pass. O(B (A + N)).
void DqnLoss(Stream& stream, const DqnLossInput& in, const DqnLossOutput& out,
             DqnLossSummary* summary);

}  // namespace troop::cuda
