#pragma once

#include <string_view>

namespace troop {

// The cases of the suite `replay` that time its trees alone: batches of 512, uniformly random
// slots, 2^20 and 2^24 items, caches warm and cold. One JSON object per case on standard output, in
// ns per item. `only`: the one case to run; empty: all. Returns how many ran.
int RunTreeCases(std::string_view only, bool quick);

}  // namespace troop
