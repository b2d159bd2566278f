#pragma once

// Batches of unrolls for the small networks of dqn_testing.h.

#include <algorithm>
#include <cstdint>

#include "core/base/philox.h"
#include "tests/learners/dqn_testing.h"

namespace troop {

inline constexpr std::int64_t kUnrollSteps = 5;

// Sequences as the replay decodes them: the window of an unroll, zeros past its end.
inline SampleBatch UnrollBatch(std::int64_t unrolls, std::uint64_t seed, std::int64_t stack = 1) {
  Rng rng({seed, Purpose::kTest});
  SampleBatch b;
  const auto count = std::size_t(unrolls);
  const std::int64_t window = stack + kUnrollSteps;
  b.key.resize(count);
  b.policy_version.assign(count, 0);
  b.observation = Tensor(DType::kF32, {unrolls, window, kInputs});
  b.action = Tensor(DType::kI32, {unrolls, kUnrollSteps});
  b.reward = Tensor(DType::kF32, {unrolls, kUnrollSteps});
  b.discount = Tensor(DType::kF32, {unrolls, kUnrollSteps});
  std::ranges::fill(b.discount.as<float>(), 1.0F);
  for (std::size_t i = 0; i < count; ++i) {
    b.weight.push_back(float(rng.Uniform(0.2, 1)));
    b.length.push_back(std::int32_t(1 + rng.Below(std::uint32_t(kUnrollSteps))));
    b.burn_in.push_back(0);
    const auto frames = std::size_t(stack + b.length[i]);
    for (std::size_t k = 0; k < frames * kInputs; ++k) {
      b.observation.as<float>()[i * std::size_t(window) * kInputs + k] = float(rng.Normal());
    }
    for (std::size_t t = 0; t < std::size_t(b.length[i]); ++t) {
      b.action.as<std::int32_t>()[i * kUnrollSteps + t] = std::int32_t(rng.Below(kActions));
      b.reward.as<float>()[i * kUnrollSteps + t] = float(rng.Normal());
    }
    if (rng.Below(3) == 0)
      b.discount.as<float>()[i * kUnrollSteps + std::size_t(b.length[i]) - 1] = 0;
  }
  return b;
}

}  // namespace troop
