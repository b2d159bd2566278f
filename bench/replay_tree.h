#pragma once

#include <string_view>

namespace troop {

// Cases of the suite `replay` that time its trees alone: batches of 512, uniformly random slots,
// 2^20 and 2^24 items, warm and cold caches. Prints one JSON object per case on standard output, in
// ns per item. `only`: the single case to run; empty: all. Returns the number of cases run.
int RunTreeCases(std::string_view only, bool quick);

}  // namespace troop
