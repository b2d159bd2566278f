#pragma once

#include <cstdint>

#include "kernels/cuda/runtime/device.h"
#include "kernels/loss/text_loss.h"

namespace troop::cuda {

// Results of a loss with targets, in device memory. dx may be the input's x.
struct TextLossResults {
  float* loss = nullptr;          // [B]
  std::int32_t* right = nullptr;  // [B]: 1 if every logit is on its target's side of 0 (a sigmoid
                                  // of 1/2; at 0 the answer is no), else 0. SquaredError: all 0
  float* dx = nullptr;            // [B, N] scale · dloss/dx; nullptr: not needed
};

// GPU counterparts of kernels/loss/text_loss.h: the same formulas in f64; only the order of the
// sum over a row's outputs differs, and depends only on N. All pointers are device memory. One warp
// per row. O(B N).
void BinaryCrossEntropy(Stream& stream, const TextLossInput& in, const TextLossResults& out);
void SquaredError(Stream& stream, const TextLossInput& in, const TextLossResults& out);

}  // namespace troop::cuda
