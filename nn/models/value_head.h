#pragma once

#include <cstdint>
#include <span>

#include "core/base/status.h"
#include "kernels/loss/categorical_loss.h"
#include "nn/models/model_setup.h"

namespace troop {

// Representation of one value (learner.critic): a scalar; a categorical distribution over atoms, as
// logits, whose mean is the value (C51, Bellemare et al. 2017; D4PG); or quantiles of the return,
// whose mean is the value (QR-DQN, Dabney et al. 2018).
struct ValueHead {
  using Kind = CriticKind;
  Kind kind = Kind::kScalar;
  std::int64_t numbers = 1;  // K: network outputs per value
  double low = 0, high = 0;  // first and last atom
  ValueSupport support() const { return {numbers, low, high}; }
};
ValueHead GetValueHead(const ModelSetup& setup);
// Errors: kInvalidArgument: too few outputs, or atoms that do not increase.
Status CheckValueHead(const ModelSetup& setup);

// Mean values: out [values, K] → q [values]. O(values · K).
void ExpectedValues(const ValueHead& form, std::span<const float> out, std::span<float> q);
// dout = scale · dq/dout, both [values, K].
void ExpectedValueGradient(const ValueHead& form, std::span<const float> out, double scale,
                           std::span<float> dout);

}  // namespace troop
