#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/tensor.h"

namespace troop {

// A number that is NaN or infinite, and where it was.
struct BadNumber {
  std::string_view what;    // "reward", "observation", …
  std::int64_t index = -1;  // within it; -1: it is one number
  float value = 0;
};
std::string ToString(const BadNumber& bad);  // "observation[2] is nan"

// The step that gave it.
struct StepName {
  std::string_view env;           // its id
  std::uint64_t environment = 0;  // which of them
  std::uint64_t episode = 0;
  std::uint64_t seed = 0;     // of the episode
  std::uint64_t step = 0;     // within the episode, from 1; 0: its beginning
  std::uint64_t version = 0;  // of the weights that acted
};
// "CartPole-v1: reward is nan at step 3 of episode 5 of environment 0 (seed 17, weights of update
// 120)"
std::string DescribeOrigin(std::string_view what, const StepName& step);

// The first bad one in a row of a tensor [N, ...]; types other than f32 have none.
std::optional<BadNumber> FindBadNumber(std::string_view what, const ConstTensor& rows,
                                       std::size_t row);

// The first finite one of kSuspectNumber and more in such a row.
std::optional<BadNumber> FindSuspectNumber(std::string_view what, const ConstTensor& rows,
                                           std::size_t row);
bool AnySuspectNumber(const ConstTensor& rows);  // in any row; fast

// False where none is bad in any row: the fast way to know that all is well.
bool AnyBadNumber(const ConstTensor& rows);

}  // namespace troop
