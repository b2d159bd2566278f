#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/tensor/tensor.h"

namespace troop {

// A NaN or infinite value, with its location.
struct NonFiniteValue {
  std::string_view what;    // "reward", "observation", …
  std::int64_t index = -1;  // within the tensor; -1: a scalar
  float value = 0;
};
std::string ToString(const NonFiniteValue& bad);  // "observation[2] is nan"

// Origin of a value: environment, episode, step and weights.
struct StepName {
  std::string_view env;           // its id
  std::uint64_t environment = 0;  // its index
  std::uint64_t episode = 0;
  std::uint64_t seed = 0;     // of the episode
  std::uint64_t step = 0;     // within the episode, from 1; 0: the reset
  std::uint64_t version = 0;  // of the weights that chose the action
};
// One-line description of the origin, for logs: "CartPole-v1: reward is nan at step 3 of episode 5
// of environment 0 (seed 17, weights of update 120)"
std::string DescribeOrigin(std::string_view what, const StepName& step);

// The first non-finite value in a row of a tensor [N, ...]; types other than f32 have none.
std::optional<NonFiniteValue> FindNonFinite(std::string_view what, const ConstTensor& rows,
                                            std::size_t row);

// The first finite value of magnitude kSuspiciousMagnitude or more in such a row.
std::optional<NonFiniteValue> FindSuspectNumber(std::string_view what, const ConstTensor& rows,
                                                std::size_t row);
bool AnySuspectNumber(const ConstTensor& rows);  // in any row; fast

// True if any row has a non-finite value; a fast check for the common case.
bool AnyNonFinite(const ConstTensor& rows);

}  // namespace troop
