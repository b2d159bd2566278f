#pragma once

#include <cstdint>
#include <span>

#include "core/config.h"
#include "core/status.h"
#include "kernels/categorical_loss.h"

namespace troop {

// What a network says of one value (learner.critic): the value; the chances of atoms, as logits,
// whose mean it is (C51, Bellemare et al. 2017; D4PG); or quantiles of what may come, whose mean it
// is (QR-DQN, Dabney et al. 2018).
struct ValueForm {
  enum class Kind : std::uint8_t { kScalar, kCategorical, kQuantile };
  Kind kind = Kind::kScalar;
  std::int64_t numbers = 1;  // K, that the network gives of one value
  double low = 0, high = 0;  // of the first and the last atom
  ValueSupport support() const { return {numbers, low, high}; }
};
ValueForm ValueFormOf(const Config& config);
// Errors: kInvalidArgument: no such form, too few numbers, atoms that don't go upwards.
Status CheckValueForm(const Config& config);

// out: [values, K] → q: [values]. O(values · K).
void ExpectedValues(const ValueForm& form, std::span<const float> out, std::span<float> q);
// dout = scale · dq/dout: [values, K] both.
void ExpectedValueGradient(const ValueForm& form, std::span<const float> out, double scale,
                           std::span<float> dout);

}  // namespace troop
