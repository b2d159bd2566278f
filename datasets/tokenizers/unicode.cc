// Unicode tables and algorithms that the tokenizers need: categories, case, normal forms, UTF-8.

#include "datasets/tokenizers/unicode.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "datasets/tokenizers/unicode_data.h"

namespace troop {
namespace {

// A run of characters with one value, from `first` to the next run's `first`.
struct Run {
  char32_t first;
  std::uint16_t value;
};
// Replacement of one character by a range of the pool; sorted by `from`.
struct Mapping {
  char32_t from;
  std::uint32_t offset;  // into the pool
  std::uint32_t length;
};

// Decodes the embedded tables. The text is part of the program, so invalid digits are not checked.
std::string DecodeBase64(std::string_view text) {
  std::array<std::uint8_t, 256> digit{};
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (std::size_t i = 0; i < kDigits.size(); ++i) {
    // RFC 4648, section 4: the position of a digit in the alphabet is its value.
    digit[static_cast<unsigned char>(kDigits[i])] = std::uint8_t(i);
  }
  std::string bytes;
  std::uint32_t bits = 0;
  int held = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = bits << 6 | digit[static_cast<unsigned char>(c)];
    held += 6;
    // Four digits give three bytes.
    if (held < 8) continue;
    held -= 8;
    bytes.push_back(static_cast<char>(bits >> held));
  }
  return bytes;
}

// Unpacks the tables; tools/make_unicode_tables.py defines the format.
class Tables {
 public:
  Tables() : bytes_(DecodeBase64(internal::kUnicodeData)) {
    ReadRuns(&flags);
    ReadRuns(&combining);
    for (auto* mapping : {&lower, &canonical, &compatible}) ReadMapping(mapping);
    TROOP_CHECK(position_ == bytes_.size(), "{} of {} bytes", position_, bytes_.size());
    bytes_ = {};
    FindCompositions();
  }

  std::vector<Run> flags, combining;
  std::vector<Mapping> lower, canonical, compatible;
  std::u32string pool;
  // Pairs that compose, first << 32 | second, with the composed character; sorted.
  std::vector<std::pair<std::uint64_t, char32_t>> compositions;

 private:
  // Reads a LEB128 varint.
  std::uint32_t Next() {
    std::uint32_t value = 0;
    for (int shift = 0;; shift += 7) {
      TROOP_CHECK(position_ < bytes_.size(), "the tables end within a number");
      const auto byte = static_cast<unsigned char>(bytes_[position_++]);
      value |= std::uint32_t(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
  }
  // Reads a zigzag-encoded varint.
  std::int32_t NextSigned() {
    const std::uint32_t value = Next();
    return value & 1 ? -std::int32_t(value / 2) - 1 : std::int32_t(value / 2);
  }

  // Format: the number of runs, then for each its length and its value.
  void ReadRuns(std::vector<Run>* runs) {
    runs->resize(Next());
    char32_t first = 0;
    for (Run& run : *runs) {
      run.first = first;
      first += Next();
      run.value = std::uint16_t(Next());
    }
  }

  // Format: the number of entries, then for each its distance from the previous entry, its length
  // and steps.
  // The lowest bit of the length is set if a repeat count follows the steps.
  void ReadMapping(std::vector<Mapping>* mapping) {
    // An entry may repeat at a fixed distance; targets are stored as steps from the source
    // character.
    char32_t from = 0;
    std::vector<std::int32_t> steps;
    for (std::uint32_t entries = Next(); entries > 0; --entries) {
      const std::uint32_t distance = Next(), length = Next();
      steps.resize(length / 2);
      for (std::int32_t& step : steps) step = NextSigned();
      for (std::uint32_t times = 1 + (length & 1 ? Next() : 0); times > 0; --times) {
        from += distance;
        mapping->push_back({from, std::uint32_t(pool.size()), length / 2});
        char32_t last = from;
        for (const std::int32_t step : steps) pool.push_back(last += step);
      }
    }
  }

  // Inverts the canonical decompositions. They are complete, so the first character of a pair is
  // what all but the last of a longer one compose to.
  void FindCompositions();

  std::string bytes_;
  std::size_t position_ = 0;
};

// Value of the run that contains `c`. O(log runs).
std::uint16_t Find(const std::vector<Run>& runs, char32_t c) {
  // Runs cover all code points from 0, so a predecessor always exists.
  const auto after = std::upper_bound(runs.begin(), runs.end(), c,
                                      [](char32_t code, const Run& r) { return code < r.first; });
  return std::prev(after)->value;
}

void Tables::FindCompositions() {
  std::map<std::u32string_view, char32_t> composed;
  for (const auto& [from, offset, length] : canonical) {
    if (length < 2 || Find(flags, from) & kCharNotComposed) continue;
    composed.emplace(std::u32string_view(pool).substr(offset, length), from);
  }
  for (const auto& [text, to] : composed) {
    char32_t first = text[0];
    if (text.size() > 2) {
      const auto found = composed.find(text.substr(0, text.size() - 1));
      if (found == composed.end()) continue;
      first = found->second;
    }
    compositions.push_back({std::uint64_t(first) << 32 | text.back(), to});
  }
  std::sort(compositions.begin(), compositions.end());
}

const Tables& TheTables() {
  // Initialized once, thread-safe.
  static const Tables tables;
  return tables;
}

// Replacement of `c`; empty: unchanged.
std::u32string_view Find(const std::vector<Mapping>& mapping, char32_t c) {
  const auto found =
      std::lower_bound(mapping.begin(), mapping.end(), c,
                       [](const Mapping& m, char32_t code) { return m.from < code; });
  if (found == mapping.end() || found->from != c) return {};
  return std::u32string_view(TheTables().pool).substr(found->offset, found->length);
}

constexpr char32_t kCapitalSigma = 0x3A3, kSigma = 0x3C3, kFinalSigma = 0x3C2;

// Unicode 14.0, sec. 3.13, table 3-17: a sigma is final after a cased letter and not before one;
// case-ignorable characters are skipped.
bool IsFinalSigma(std::u32string_view text, std::size_t at) {
  const auto ignorable = [&](std::size_t i) { return CharFlagsOf(text[i]) & kCharCaseIgnorable; };
  const auto cased = [&](std::size_t i) { return CharFlagsOf(text[i]) & kCharCased; };
  std::size_t before = at;
  while (before > 0 && ignorable(before - 1)) --before;
  // A word that begins with the sigma has no cased letter before it.
  if (before == 0 || !cased(before - 1)) return false;
  std::size_t after = at + 1;
  while (after < text.size() && ignorable(after)) ++after;
  return after == text.size() || !cased(after);
}

// Unicode 14.0, sec. 3.12: syllables are ordered by leading consonant, vowel, trailing consonant.
bool DecomposeHangul(char32_t c, std::u32string* out) {
  constexpr char32_t kFirst = 0xAC00, kLeading = 0x1100, kVowel = 0x1161, kTrailing = 0x11A7;
  constexpr char32_t kVowels = 21, kTrailings = 28, kSyllables = 11172;
  if (c < kFirst || c >= kFirst + kSyllables) return false;
  const char32_t index = c - kFirst;
  out->push_back(kLeading + index / (kVowels * kTrailings));
  out->push_back(kVowel + index % (kVowels * kTrailings) / kTrailings);
  if (index % kTrailings != 0) out->push_back(kTrailing + index % kTrailings);
  return true;
}

// The character that a pair composes to; 0: none.
char32_t ComposePair(char32_t first, char32_t second) {
  // Hangul: a leading consonant and a vowel, or a syllable without a trailing consonant and one.
  constexpr char32_t kFirst = 0xAC00, kLeading = 0x1100, kVowel = 0x1161, kTrailing = 0x11A7;
  constexpr char32_t kVowels = 21, kTrailings = 28, kSyllables = 11172, kLeadings = 19;
  if (first - kLeading < kLeadings && second - kVowel < kVowels) {
    return kFirst + ((first - kLeading) * kVowels + (second - kVowel)) * kTrailings;
  }
  if (first - kFirst < kSyllables && (first - kFirst) % kTrailings == 0 && second > kTrailing &&
      second < kTrailing + kTrailings) {
    return first + (second - kTrailing);
  }
  // All other pairs are in a table.
  const auto& pairs = TheTables().compositions;
  const std::uint64_t key = std::uint64_t(first) << 32 | second;
  const auto found = std::lower_bound(pairs.begin(), pairs.end(), std::pair(key, char32_t(0)));
  return found != pairs.end() && found->first == key ? found->second : 0;
}

// Canonical ordering: sorts runs of non-starters by combining class (Unicode 14.0, sec. 3.11).
void OrderMarks(std::u32string* text) {
  for (std::size_t begin = 0; begin < text->size();) {
    // Characters below U+0300 are starters; the comparison avoids a lookup for most text.
    if ((*text)[begin] < 0x300 || CombiningClass((*text)[begin]) == 0) {
      ++begin;
      continue;
    }
    std::size_t end = begin + 1;
    while (end < text->size() && CombiningClass((*text)[end]) != 0) ++end;
    // Stable, because the standard keeps the order of marks with equal classes.
    std::stable_sort(text->begin() + begin, text->begin() + end,
                     [](char32_t a, char32_t b) { return CombiningClass(a) < CombiningClass(b); });
    begin = end;
  }
}

}  // namespace

std::uint16_t CharFlagsOf(char32_t c) { return Find(TheTables().flags, c); }

// The sets differ only in U+001C to U+001F.
bool IsWhiteSpace(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
  return (CharFlagsOf(c) & kCharSpace) != 0;
}

std::uint8_t CombiningClass(char32_t c) { return std::uint8_t(Find(TheTables().combining, c)); }

// One character may become several, but its neighbors have no influence.
std::u32string LowerCaseOfEach(std::u32string_view text) {
  const Tables& tables = TheTables();
  std::u32string out;
  out.reserve(text.size());
  for (const char32_t c : text) {
    const auto lower = c < 0x80 ? std::u32string_view() : Find(tables.lower, c);
    if (!lower.empty()) {
      out += lower;
    } else {
      out.push_back(c >= U'A' && c <= U'Z' ? c + 32 : c);
    }
  }
  return out;
}

// Full lower-case mapping: one character may become several, and sigma depends on its context.
std::u32string LowerCase(std::u32string_view text) {
  const Tables& tables = TheTables();
  std::u32string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char32_t c = text[i];
    if (c < 0x80) {
      out.push_back(c >= U'A' && c <= U'Z' ? c + 32 : c);
    } else if (c == kCapitalSigma) {
      out.push_back(IsFinalSigma(text, i) ? kFinalSigma : kSigma);
    } else if (const auto lower = Find(tables.lower, c); !lower.empty()) {
      out += lower;
    } else {
      out.push_back(c);
    }
  }
  return out;
}

// Steps: replace each character by its full decomposition, then order the marks.
std::u32string Decompose(std::u32string_view text, Decomposition form) {
  const Tables& tables = TheTables();
  std::u32string out;
  out.reserve(text.size());
  for (const char32_t c : text) {
    if (c < 0x80) {
      out.push_back(c);
      continue;
    }
    if (DecomposeHangul(c, &out)) continue;
    // Compatibility tables list only characters that differ from the canonical ones.
    std::u32string_view parts;
    if (form == Decomposition::kCompatible) parts = Find(tables.compatible, c);
    if (parts.empty()) parts = Find(tables.canonical, c);
    if (parts.empty()) parts = {&c, 1};
    out += parts;
  }
  OrderMarks(&out);
  return out;
}

// Each character composes with the last starter if no character between them has its class or a
// higher one (Unicode 14.0, D117).
std::u32string Compose(std::u32string_view decomposed) {
  std::u32string out;
  out.reserve(decomposed.size());
  std::size_t starter = decomposed.npos;  // position in `out`
  int class_before = 0;                   // of the last character after the starter; 0: none
  for (const char32_t c : decomposed) {
    const int combining = c < 0x300 ? 0 : CombiningClass(c);
    const bool adjacent = starter != decomposed.npos && starter + 1 == out.size();
    if (starter != decomposed.npos && (adjacent || (combining > class_before))) {
      if (const char32_t composed = ComposePair(out[starter], c)) {
        out[starter] = composed;
        continue;
      }
    }
    class_before = combining;
    if (combining == 0) starter = out.size();
    out.push_back(c);
  }
  return out;
}

// Decodes one character, or U+FFFD for an invalid byte (Unicode 14.0, table 3-7).
char32_t DecodeUtf8(std::string_view text, std::size_t* position) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte((*position)++);
  if (lead < 0x80) return lead;
  // Lead bytes C0, C1 and F5 to FF never occur in UTF-8. On any error only the lead byte is
  // consumed.
  const int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
  if (lead < 0xC2 || lead > 0xF4 || text.size() - *position < std::size_t(more)) {
    return kReplacementCharacter;
  }
  // A lead byte of `more` following bytes has 6 - more payload bits.
  char32_t c = lead & (0x3F >> more);
  for (int i = 0; i < more; ++i) {
    const unsigned char next = byte(*position + i);
    if ((next & 0xC0) != 0x80) return kReplacementCharacter;
    c = c << 6 | (next & 0x3F);
  }
  constexpr char32_t kLeast[] = {0, 0x80, 0x800, 0x10000};  // smaller values are overlong
  if (c < kLeast[more] || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) return kReplacementCharacter;
  *position += more;
  return c;
}

bool IsUtf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t begin = i;
    // A real U+FFFD has three bytes; an invalid byte advances by one.
    if (DecodeUtf8(text, &i) == kReplacementCharacter && i == begin + 1) return false;
  }
  return true;
}

std::u32string ToUtf32(std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) out.push_back(DecodeUtf8(text, &i));
  return out;
}

// Surrogates and values above U+10FFFF are not characters; they become U+FFFD.
void AppendUtf8(char32_t c, std::string* out) {
  if ((c >= 0xD800 && c < 0xE000) || c > 0x10FFFF) c = kReplacementCharacter;
  const auto tail = [&](int shift) {
    out->push_back(static_cast<char>(0x80 | (c >> shift & 0x3F)));
  };
  if (c < 0x80) {
    out->push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    out->push_back(static_cast<char>(0xC0 | c >> 6));
    tail(0);
  } else if (c < 0x10000) {
    out->push_back(static_cast<char>(0xE0 | c >> 12));
    tail(6);
    tail(0);
  } else {
    out->push_back(static_cast<char>(0xF0 | c >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

std::string ToUtf8(std::u32string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char32_t c : text) AppendUtf8(c, &out);
  return out;
}

}  // namespace troop
