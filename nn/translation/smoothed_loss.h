#pragma once

#include <cstdint>
#include <span>

namespace troop {

// Sums over the tokens of a batch; values of several batches can be added.
struct TokenLosses {
  double smoothed = 0;     // Σ of the losses with label smoothing
  double likelihood = 0;   // Σ of -log p(label), without smoothing
  std::int64_t right = 0;  // tokens whose label has the largest logit, the first of equal ones
  std::int64_t tokens = 0;
};

// Cross entropy with label smoothing (Szegedy et al. 2016, sec. 7; PyTorch's label_smoothing): the
// target distribution is 1 - smoothing at the label, plus smoothing / vocabulary everywhere.
//   logits: [T, vocabulary]; with `differentiate` they become their gradient times `scale`.
//   labels: [T]. REQUIRES: 0 <= label < vocabulary, and 0 <= smoothing < 1.
// The sums are not finite if a logit is not. O(T vocabulary).
struct SmoothedLossArgs {
  std::int64_t vocabulary = 0;
  std::span<const std::int32_t> labels;
  float smoothing = 0, scale = 1;
  bool differentiate = false;
  float* logits = nullptr;
};
TokenLosses SmoothedLoss(const SmoothedLossArgs& args);

}  // namespace troop
