#include "datasets/tokenizers/unicode.h"

#include <gtest/gtest.h>

#include <string>

#include "core/storage/sha256.h"

namespace troop {
namespace {

// Where characters differ from their neighbours, and of the rest the ends of blocks.
bool IsChecked(char32_t c) {
  if (c >= 0xD800 && c < 0xE000) return false;
  return c < 0x3400 || c % 256 == 0 || c % 256 == 255 || (c >= 0xA000 && c < 0xAD00) ||
         (c >= 0xF900 && c < 0x12000) || (c >= 0x16800 && c < 0x17000) ||
         (c >= 0x1B000 && c < 0x20000) || (c >= 0x2F800 && c < 0x2FA20) ||
         (c >= 0xE0000 && c < 0xE0200);
}

// tools/make_unicode_tables.py --digest: what Python's unicodedata (14.0.0) says of each character.
TEST(UnicodeTest, EveryCharacterMatchesPython) {
  std::string lines;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (!IsChecked(c)) continue;
    lines += std::to_string(CharFlagsOf(c)) + ' ' + std::to_string(CombiningClass(c));
    for (const std::u32string& text :
         {LowerCase({&c, 1}), Decompose({&c, 1}, Decomposition::kCanonical),
          Decompose({&c, 1}, Decomposition::kCompatible),
          Compose(Decompose({&c, 1}, Decomposition::kCanonical)),
          Compose(Decompose({&c, 1}, Decomposition::kCompatible))}) {
      lines += ' ' + ToUtf8(text);
    }
    lines += '\n';
  }
  EXPECT_EQ(Sha256Hex(lines), "5493dccef71cc2c566bb7b2dec594db6192b8cd6a3372c89e544eec3495f8566");
}

TEST(UnicodeTest, LowercasesFinalSigmaOnlyAtEndOfWord) {
  EXPECT_EQ(LowerCase(U"ΟΔΟΣ"), U"οδος");
  EXPECT_EQ(LowerCase(U"ΟΔΟΣ ΣΑΣ"), U"οδος σας");
  EXPECT_EQ(LowerCase(U"Σ"), U"σ");
  EXPECT_EQ(LowerCase(U"ΑΣ\u0301"), U"ας\u0301");  // over what is ignorable
  EXPECT_EQ(LowerCase(U"ΑΣ\u0301Α"), U"ασ\u0301α");
  EXPECT_EQ(LowerCase(U"Α\u0301Σ"), U"α\u0301ς");
}

TEST(UnicodeTest, OrdersMarksByCombiningClassBetweenStarters) {
  // 0x301 is of class 230, 0x323 of class 220.
  EXPECT_EQ(Decompose(U"a\u0301\u0323", Decomposition::kCanonical), U"a\u0323\u0301");
  EXPECT_EQ(Decompose(U"\u00E1\u0323b\u0301\u0301", Decomposition::kCanonical),
            U"a\u0323\u0301b\u0301\u0301");
  EXPECT_EQ(Decompose(U"a\u0301b\u0323", Decomposition::kCanonical), U"a\u0301b\u0323");
}

TEST(UnicodeTest, ComposesMarksThatAreNotBlocked) {
  const auto nfc = [](std::u32string_view text) {
    return Compose(Decompose(text, Decomposition::kCanonical));
  };
  EXPECT_EQ(nfc(U"e\u0301\u0302"), U"\u00E9\u0302");  // equal classes: blocked
  EXPECT_EQ(nfc(U"q\u0307\u0323e\u0301"), U"q\u0323\u0307\u00E9");
  EXPECT_EQ(nfc(U"a\u0323\u0301"), U"\u1EA1\u0301");
  EXPECT_EQ(nfc(U"d\u0307\u0323"), U"\u1E0D\u0307");
  EXPECT_EQ(nfc(U"\u1112\u1161\u11AB\u1112\u1161\u11A7"), U"\uD55C\uD558\u11A7");
  EXPECT_EQ(nfc(U"\u0344\u0958"), U"\u0308\u0301\u0915\u093C");  // excluded
  EXPECT_EQ(nfc(U"\u0301e\u0301"), U"\u0301\u00E9");
}

TEST(UnicodeTest, DecodesUtf8PerStandard) {
  for (const char32_t c :
       {0x0, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFD, 0xFFFF, 0x10000, 0x10FFFF}) {
    const std::string bytes = ToUtf8({&c, 1});
    EXPECT_EQ(ToUtf32(bytes), std::u32string(1, c));
    EXPECT_TRUE(IsUtf8(bytes));
  }
  // Overlong, a surrogate, beyond the last, cut off, a tail alone: each byte a replacement.
  for (const std::string bad : {"\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80",
                                "\xE2\x82", "\x80", "\xFF", "\xF0\x80\x80\x80", "\xC1\xBF"}) {
    EXPECT_EQ(ToUtf32(bad), std::u32string(bad.size(), kReplacementCharacter)) << bad.size();
    EXPECT_FALSE(IsUtf8("a" + bad));
  }
  EXPECT_EQ(ToUtf32("\xE2\x82z"), U"\uFFFD\uFFFDz");
}

}  // namespace
}  // namespace troop
