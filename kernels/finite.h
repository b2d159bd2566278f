#pragma once

#include <cstddef>
#include <span>

namespace troop {

// True when no element is NaN or infinite. One version, as fast as memory. O(n).
bool AllFinite(std::span<const float> x);
// The first element that is NaN or infinite; x.size(): there is none.
std::size_t FirstUnfinite(std::span<const float> x);

}  // namespace troop
