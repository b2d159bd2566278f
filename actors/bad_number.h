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

// The first bad one in a row of a tensor [N, ...]; types other than f32 have none.
std::optional<BadNumber> FindBadNumber(std::string_view what, const ConstTensor& rows,
                                       std::size_t row);

// False where none is bad in any row: the fast way to know that all is well.
bool AnyBadNumber(const ConstTensor& rows);

}  // namespace troop
