#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace troop {

// Characters as the reference tokenizers see them: Python's str methods and unicodedata, Unicode
// 14.0. The tables are made by tools/make_unicode_tables.py, are unpacked at first use (some 0.3
// ms) and never change: all functions may be called by any thread.

// Bits of CharFlagsOf.
enum CharFlags : std::uint8_t {
  kCharControl = 1,      // category C*: control, format, surrogate, private use, unassigned
  kCharSpace = 2,        // str.isspace()
  kCharPunctuation = 4,  // category P*
  kCharMark = 8,         // category Mn: accents and the like
  kCharCased = 16,       // and not case-ignorable; what a final sigma stands behind
  kCharCaseIgnorable = 32,
  kCharDigit = 64,  // str.isdigit()
};
std::uint8_t CharFlagsOf(char32_t c);

// Canonical combining class; 0: a starter.
std::uint8_t CombiningClass(char32_t c);

// str.lower(), with final sigmas. O(n), but for runs of case-ignorable characters around sigmas.
std::u32string LowerCase(std::u32string_view text);

// unicodedata.normalize("NFD" or "NFKD", text).
enum class Decomposition : std::uint8_t { kCanonical, kCompatible };
std::u32string Decompose(std::u32string_view text, Decomposition form);

inline constexpr char32_t kReplacementCharacter = 0xFFFD;

// The character that begins at `*position`, which moves behind it. A byte that begins no valid
// UTF-8 (RFC 3629: no surrogates, nothing overlong) is U+FFFD by itself. REQUIRES: *position <
// text.size().
char32_t DecodeUtf8(std::string_view text, std::size_t* position);
bool IsUtf8(std::string_view text);
std::u32string ToUtf32(std::string_view text);
void AppendUtf8(char32_t c, std::string* out);  // a surrogate becomes U+FFFD
std::string ToUtf8(std::u32string_view text);

}  // namespace troop
