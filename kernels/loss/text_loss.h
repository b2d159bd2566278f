#pragma once

#include <cstdint>

namespace troop {

// Outputs of a text model and what they should be, for the losses with targets in f32. B rows of N
// outputs.
struct TextLossInput {
  std::int64_t rows = 0, outputs = 1;
  const float* x = nullptr;       // [B, N] logits or predicted numbers
  const float* target = nullptr;  // [B, N]
  float scale = 1;                // factor of the gradient
};
// Results of a loss. dx may be the input's x.
struct TextLossOutput {
  float* loss = nullptr;  // [B]
  float* dx = nullptr;    // [B, N] scale · dloss/dx; nullptr: not needed
};

// Binary cross entropy of sigmoids, for any number of labels per text. The loss of a row is the
// mean over its N labels of
//   max(x, 0) - x t + log(1 + exp(-|x|))
// so that the mean over rows equals BCEWithLogitsLoss of PyTorch. The target is 0 or 1. Computed in
// f64 except for inputs and outputs; not finite if an input is not. O(B N).
void BinaryCrossEntropy(const TextLossInput& in, const TextLossOutput& out);

// Squared error, for regression: the mean over the N outputs of a row of (x - t)². The mean over
// rows equals MSELoss of PyTorch. Computed in f64 as above. O(B N).
void SquaredError(const TextLossInput& in, const TextLossOutput& out);

}  // namespace troop
