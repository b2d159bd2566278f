#pragma once

#include <span>
#include <string>
#include <string_view>

namespace troop {

// Fewest insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`
// ("optimal string alignment"). O(|a|·|b|).
int EditDistance(std::string_view a, std::string_view b);

// The candidate that a mistyped `word` most likely meant; case doesn't count. A word without its
// section ("batch_size") finds "learner.batch_size". Empty when none is near: when more than one
// letter in four, and one, would have to change.
std::string Nearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace troop
