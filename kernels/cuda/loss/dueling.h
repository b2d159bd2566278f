#pragma once

#include <cstdint>

#include "kernels/cuda/runtime/device.h"

namespace troop::cuda {

// q [rows, A, K] = v + a - mean over actions of a (Wang et al. 2016, eq. 9), from value v [rows, K]
// and advantage a [rows, A, K]. f32, sums in the order of actions. For callers that need q-values;
// the losses of an update combine the heads themselves (dqn_loss.h). O(rows A K), one launch.
void CombineDueling(Stream& stream, std::int64_t rows, std::int64_t actions, std::int64_t numbers,
                    const float* value, const float* advantage, float* q);

}  // namespace troop::cuda
