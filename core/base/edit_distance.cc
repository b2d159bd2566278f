// Implements EditDistance by dynamic programming over three rows, and Nearest.
#include "core/base/edit_distance.h"

#include <algorithm>
#include <cctype>
#include <vector>

namespace troop {
namespace {

constexpr std::size_t kWordMax = 256;  // longer words are truncated: they are not typing errors

std::string Lower(std::string_view text) {
  std::string lower(text.substr(0, kWordMax));
  for (char& c : lower) c = char(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

// The name without its section.
std::string_view Leaf(std::string_view key) { return key.substr(key.rfind('.') + 1); }

// Maximum number of mistakes in a word that still counts as near.
int Mistakes(std::string_view word) { return 1 + int(word.size()) / 4; }

}  // namespace

// Optimal string alignment: insertions, deletions, replacements and swaps of neighbors cost 1.
int EditDistance(std::string_view a, std::string_view b) {
  // Three rows of the distance matrix: i - 2, i - 1 and i.
  std::vector<int> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) above[j] = int(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = int(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + int(a[i - 1] != b[j - 1])});
      // A swap of neighbors refers to the row before the previous one.
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return above[b.size()];
}

std::string Nearest(std::string_view word, std::span<const std::string> candidates) {
  const std::string lower = Lower(word);
  std::string best;
  int best_cost = 0;
  for (const std::string& candidate : candidates) {
    const std::string other = Lower(candidate);
    // A wrong section has a fixed cost of 1, regardless of its letters; each mistake in a name
    // costs 2.
    const int whole = 2 * EditDistance(lower, other);
    const int leaf = 1 + 2 * EditDistance(Leaf(lower), Leaf(other));
    const bool near = whole <= 2 * Mistakes(lower) || leaf <= 1 + 2 * Mistakes(Leaf(lower));
    const int cost = std::min(whole, leaf);
    if (!near || (!best.empty() && cost >= best_cost)) continue;
    best = candidate;
    best_cost = cost;
  }
  return best;
}

}  // namespace troop
