// Normalizer steps of tokenizer.json files. ASCII text has shorter paths.

#include "datasets/tokenizers/text_normalizer.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "datasets/tokenizers/unicode.h"

namespace troop {
namespace {

// Matches do not overlap; the leftmost one comes first.
std::string Replace(std::string_view text, std::string_view pattern, std::string_view content) {
  std::string out;
  for (std::size_t at; (at = text.find(pattern)) != text.npos;) {
    out.append(text.substr(0, at)).append(content);
    text.remove_prefix(at + pattern.size());
  }
  return out.append(text);
}

// Replaces runs of two or more spaces: the pattern " {2,}".
std::string CollapseSpaces(std::string_view text, std::string_view content) {
  std::string out;
  while (!text.empty()) {
    const std::size_t run = std::min(text.find_first_not_of(' '), text.size());
    if (run >= 2) out.append(content);
    if (run == 1) out.push_back(' ');
    text.remove_prefix(run);
    const std::size_t word = std::min(text.find(' '), text.size());
    out.append(text.substr(0, word));
    text.remove_prefix(word);
  }
  return out;
}

// White space of all kinds, at the ends that are set.
std::string Strip(std::string_view text, bool left, bool right) {
  const std::u32string wide = ToUtf32(text);
  std::size_t begin = 0, end = wide.size();
  while (left && begin < end && IsWhiteSpace(wide[begin])) ++begin;
  while (right && begin < end && IsWhiteSpace(wide[end - 1])) --end;
  return ToUtf8(std::u32string_view(wide).substr(begin, end - begin));
}

// True if a character belongs to the grapheme of the one before it (Unicode annex 29): marks,
// joiners and the half-width marks of kana. Other rules join only characters of three bytes or
// more, whose graphemes the map does not apply to as a whole.
bool ContinuesGrapheme(char32_t c) {
  if (c < 0x300) return false;
  return c == 0x200C || c == 0x200D || c == 0xFF9E || c == 0xFF9F ||
         (CharFlagsOf(c) & kCharCombining) != 0;
}

// Control and format characters are never joined with a mark.
bool EndsGrapheme(char32_t c) {
  const std::uint16_t flags = CharFlagsOf(c);
  return (flags & kCharControl && !(flags & kCharUnassigned)) || c == 0x2028 || c == 0x2029;
}

// End of the grapheme that begins at `begin`.
std::size_t GraphemeEnd(std::string_view text, std::size_t begin) {
  std::size_t end = begin;
  const char32_t first = DecodeUtf8(text, &end);
  if (first == '\r' && end < text.size() && text[end] == '\n') return end + 1;
  if (end == text.size() || (text[end] >= 0) || EndsGrapheme(first)) return end;
  for (std::size_t next = end; next < text.size(); end = next) {
    if (!ContinuesGrapheme(DecodeUtf8(text, &next))) break;
  }
  return end;
}

// The normalizer "Precompiled" of Hugging Face's tokenizers: a grapheme below six bytes is replaced
// as a whole by the replacement of the shortest sequence that it begins with, if there is one;
// else each character is.
std::string ApplyCharsmap(const Charsmap& map, std::string_view text) {
  constexpr std::size_t kWholeBytesMax = 5;
  std::string out;
  out.reserve(text.size());
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = GraphemeEnd(text, begin);
    const std::string_view grapheme = text.substr(begin, end - begin);
    std::size_t length = 0;
    std::string_view mapped;
    if (grapheme.size() <= kWholeBytesMax) mapped = map.MatchShortest(grapheme, &length);
    if (length > 0) {
      out += mapped;
      begin = end;
      continue;
    }
    // No sequence fits, or the grapheme is longer: character by character.
    while (begin < end) {
      const std::size_t character = begin;
      DecodeUtf8(text, &begin);
      const std::string_view part = text.substr(character, begin - character);
      mapped = map.MatchShortest(part, &length);
      out += length > 0 ? mapped : part;
    }
  }
  return out;
}

// Applies one step to text that is not ASCII, or that the step changes.
std::string Normalize(const NormalizerStep& step, std::string_view text) {
  using Kind = NormalizerStep::Kind;
  const auto form = [&](Decomposition decomposition, bool compose) {
    std::u32string wide = Decompose(ToUtf32(text), decomposition);
    return ToUtf8(compose ? Compose(wide) : wide);
  };
  switch (step.kind) {
    case Kind::kNfc:
      return form(Decomposition::kCanonical, true);
    case Kind::kNfd:
      return form(Decomposition::kCanonical, false);
    case Kind::kNfkc:
      return form(Decomposition::kCompatible, true);
    case Kind::kNfkd:
      return form(Decomposition::kCompatible, false);
    case Kind::kLowercase:
      return ToUtf8(LowerCaseOfEach(ToUtf32(text)));
    case Kind::kStripAccents: {
      std::u32string wide = ToUtf32(text);
      std::erase_if(wide, [](char32_t c) { return CharFlagsOf(c) & kCharCombining; });
      return ToUtf8(wide);
    }
    case Kind::kReplace:
      return Replace(text, step.pattern, step.content);
    case Kind::kCollapseSpaces:
      return CollapseSpaces(text, step.content);
    case Kind::kStrip:
      return Strip(text, step.left, step.right);
    case Kind::kPrecompiled:
      return ApplyCharsmap(*step.charsmap, text);
  }
  return std::string(text);
}

// True if the step leaves ASCII text as it is.
bool KeepsAscii(NormalizerStep::Kind kind) {
  using Kind = NormalizerStep::Kind;
  return kind == Kind::kNfc || kind == Kind::kNfd || kind == Kind::kNfkc || kind == Kind::kNfkd ||
         kind == Kind::kStripAccents;
}

}  // namespace

std::string TextNormalizer::operator()(std::string_view text) const {
  std::string out(text);
  // Looked at again after each step: a step may turn other text into ASCII.
  bool ascii = IsAscii(out);
  for (const NormalizerStep& step : steps_) {
    if (ascii && KeepsAscii(step.kind)) continue;
    if (ascii && step.kind == NormalizerStep::Kind::kLowercase) {
      for (char& c : out) c = c >= 'A' && c <= 'Z' ? char(c + 32) : c;
      continue;
    }
    out = Normalize(step, out);
    ascii = IsAscii(out);
  }
  return out;
}

// Eight bytes at a time: this precedes all work on English text.
bool IsAscii(std::string_view text) {
  constexpr std::uint64_t kHighBits = 0x8080808080808080;
  std::size_t i = 0;
  for (std::uint64_t word; i + sizeof word <= text.size(); i += sizeof word) {
    std::memcpy(&word, text.data() + i, sizeof word);
    if (word & kHighBits) return false;
  }
  return std::all_of(text.begin() + std::ptrdiff_t(i), text.end(), [](char c) { return c >= 0; });
}

// English text takes only the first test.
std::string_view ValidUtf8(std::string_view text, std::string* valid) {
  if (IsAscii(text) || IsUtf8(text)) return text;
  *valid = ToUtf8(ToUtf32(text));
  return *valid;
}

}  // namespace troop
