#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace troop {

// Sums from which BLEU follows, of one sentence or of several. 64-bit, so that sums do not
// overflow.
struct BleuCounts {
  static constexpr int kOrder = 4;              // longest n-gram
  std::int64_t output = 0, reference = 0;       // words
  std::array<std::int64_t, kOrder> right = {};  // n-grams of the reference, each counted at most as
                                                // often as there
  std::array<std::int64_t, kOrder> total = {};  // n-grams of the output
  BleuCounts& operator+=(const BleuCounts& other);
};

// Words of a text as mteval-v13a separates them: sacrebleu's default tokenizer "13a".
std::vector<std::string> SplitBleuWords(std::string_view text);

// Compares an output with its single reference. O(words log words).
BleuCounts CountBleu(std::string_view output, std::string_view reference);

// Corpus BLEU in %, 0 to 100 (Papineni et al. 2002), with sacrebleu's defaults: the precision of an
// order without any right n-gram is smoothed exponentially (Chen & Cherry 2014, method 3).
double BleuScore(const BleuCounts& counts);

}  // namespace troop
