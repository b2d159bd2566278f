// Implements corpus BLEU with the tokenizer 13a; the steps are those of sacrebleu 2.6.

#include "datasets/translation/bleu.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "datasets/tokenizers/unicode.h"

namespace troop {
namespace {

// Replaces all occurrences, from left to right.
void ReplaceAll(std::string_view from, std::string_view to, std::string* text) {
  for (std::size_t at = text->find(from); at != text->npos; at = text->find(from, at + to.size()))
    text->replace(at, from.size(), to);
}

bool IsDigit(char32_t c) { return c >= '0' && c <= '9'; }
bool IsPoint(char32_t c) { return c == '.' || c == ','; }

// ASCII symbols that are always words by themselves: all but the apostrophe and the signs , - . of
// numbers.
bool IsSymbol(char32_t c) {
  if (c <= ' ' || c > '~' || IsDigit(c)) return false;
  const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  return !letter && c != '\'' && c != ',' && c != '-' && c != '.';
}

// Rule 1: spaces around symbols.
std::u32string SeparateSymbols(const std::u32string& text) {
  std::u32string out;
  for (const char32_t c : text) {
    if (IsSymbol(c))
      out.append({U' ', c, U' '});
    else
      out.push_back(c);
  }
  return out;
}

// Rules 2 to 4 look at pairs of characters, of which each character is in one at most.
// matches(first, second): the pair is separated; apart: spaces around the point are put by `join`.
template <class Matches, class Join>
std::u32string ReplacePairs(const std::u32string& text, Matches matches, Join join) {
  std::u32string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i + 1 < text.size() && matches(text[i], text[i + 1])) {
      join(text[i], text[i + 1], &out);
      ++i;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

// The n-grams of a text with their counts.
using Grams = std::map<std::vector<std::string_view>, std::int64_t>;
Grams GramsOf(const std::vector<std::string>& words, std::size_t n) {
  Grams grams;
  for (std::size_t i = 0; i + n <= words.size(); ++i)
    ++grams[{words.begin() + std::ptrdiff_t(i), words.begin() + std::ptrdiff_t(i + n)}];
  return grams;
}

}  // namespace

BleuCounts& BleuCounts::operator+=(const BleuCounts& other) {
  output += other.output;
  reference += other.reference;
  for (std::size_t n = 0; n < kOrder; ++n) {
    right[n] += other.right[n];
    total[n] += other.total[n];
  }
  return *this;
}

// The rules are those of mteval-v13a, in its order; each works on the result of the one before.
std::vector<std::string> SplitBleuWords(std::string_view text) {
  std::string line(text);
  ReplaceAll("<skipped>", "", &line);
  ReplaceAll("-\n", "", &line);
  ReplaceAll("\n", " ", &line);
  for (const auto& [from, to] : {std::pair("&quot;", "\""), std::pair("&amp;", "&"),
                                 std::pair("&lt;", "<"), std::pair("&gt;", ">")})
    ReplaceAll(from, to, &line);
  std::u32string wide = SeparateSymbols(U' ' + ToUtf32(line) + U' ');
  // A point is a word except between digits; a dash after a digit is one.
  wide = ReplacePairs(
      wide, [](char32_t a, char32_t b) { return !IsDigit(a) && IsPoint(b); },
      [](char32_t a, char32_t b, std::u32string* out) {
        out->append({a, U' ', b, U' '});
      });
  wide = ReplacePairs(
      wide, [](char32_t a, char32_t b) { return IsPoint(a) && !IsDigit(b); },
      [](char32_t a, char32_t b, std::u32string* out) {
        out->append({U' ', a, U' ', b});
      });
  wide = ReplacePairs(
      wide, [](char32_t a, char32_t b) { return IsDigit(a) && b == '-'; },
      [](char32_t a, char32_t b, std::u32string* out) {
        out->append({a, U' ', b, U' '});
      });
  // Words are what is left between spaces.
  std::vector<std::string> words;
  bool inside = false;
  for (const char32_t c : wide) {
    const bool space = (CharFlagsOf(c) & kCharSpace) != 0;
    if (!space && !inside) words.emplace_back();
    if (!space) AppendUtf8(c, &words.back());
    inside = !space;
  }
  return words;
}

BleuCounts CountBleu(std::string_view output, std::string_view reference) {
  const auto mine = SplitBleuWords(output), theirs = SplitBleuWords(reference);
  BleuCounts counts{.output = std::int64_t(mine.size()), .reference = std::int64_t(theirs.size())};
  for (std::size_t n = 1; n <= BleuCounts::kOrder; ++n) {
    const Grams found = GramsOf(theirs, n);
    for (const auto& [gram, count] : GramsOf(mine, n)) {
      const auto same = found.find(gram);
      counts.total[n - 1] += count;
      if (same != found.end()) counts.right[n - 1] += std::min(count, same->second);
    }
  }
  return counts;
}

double BleuScore(const BleuCounts& counts) {
  if (std::ranges::all_of(counts.right, [](std::int64_t n) { return n == 0; })) return 0;
  // Outputs shorter than the references are penalized.
  const double brevity =
      counts.output < counts.reference ? 1 - double(counts.reference) / double(counts.output) : 0;
  double smooth = 1, logs = 0;
  for (std::size_t n = 0; n < BleuCounts::kOrder; ++n) {
    // No output has n words: the precision is 0, and so is the score.
    if (counts.total[n] == 0) return 0;
    if (counts.right[n] == 0) smooth *= 2;
    const double right = counts.right[n] == 0 ? 1 / smooth : double(counts.right[n]);
    logs += std::log(100 * right / double(counts.total[n]));
  }
  return std::exp(brevity + logs / BleuCounts::kOrder);
}

}  // namespace troop
