#pragma once

#include <cstddef>
#include <span>

namespace troop {

// True when no element is NaN or infinite. One version, as fast as memory. O(n).
bool AllFinite(std::span<const float> x);
// The first element that is NaN or infinite; x.size(): there is none.
std::size_t FirstUnfinite(std::span<const float> x);
// The same of `from`, which is copied in the same pass over memory; `to` up to that element alone.
// REQUIRES: equal sizes.
std::size_t CopyFinite(std::span<const float> from, std::span<float> to);

}  // namespace troop
