#pragma once

#include <cstddef>
#include <span>

namespace troop {

// True if no element is NaN or infinite. One version for all instruction sets: it runs at memory
// bandwidth. O(n).
bool AllFinite(std::span<const float> x);
// Index of the first non-finite element; x.size() if there is none.
std::size_t FirstNonFinite(std::span<const float> x);
// Copies `from` to `to` and returns FirstNonFinite(from), in one pass over memory. From that index
// on `to` is unspecified. REQUIRES: equal sizes.
std::size_t CopyFinite(std::span<const float> from, std::span<float> to);

}  // namespace troop
