#pragma once

#include <cstdint>

#include "kernels/cuda/runtime/device.h"

namespace troop::cuda {

// Arguments of CombineDueling. Device memory.
struct CombineDuelingArgs {
  std::int64_t rows = 0;
  std::int64_t actions = 0;          // A
  std::int64_t numbers = 1;          // K outputs per action
  const float* value = nullptr;      // [rows, K]
  const float* advantage = nullptr;  // [rows, A, K]
  float* q = nullptr;                // [rows, A, K], overwritten
};
// q = v + a - mean over actions of a (Wang et al. 2016, eq. 9), from value v and advantage a. f32,
// sums in the order of actions. For callers that need q-values; the losses of an update combine the
// heads themselves (dqn_loss.h). O(rows A K), one launch.
void CombineDueling(Stream& stream, const CombineDuelingArgs& args);

}  // namespace troop::cuda
