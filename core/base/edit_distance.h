#pragma once

#include <span>
#include <string>
#include <string_view>

namespace troop {

// Returns the minimum number of insertions, deletions, replacements and swaps of neighbors that
// turn `a` into `b` ("optimal string alignment"). O(|a|·|b|).
int EditDistance(std::string_view a, std::string_view b);

// Returns the candidate that a mistyped `word` most likely means, ignoring case. A word without its
// section ("batch_size") finds "learner.batch_size". Empty if none is near: at most one mistake
// plus one per four letters.
std::string Nearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace troop
