#pragma once

#include <array>
#include <cstdint>

namespace troop {

// A glyph of 5 x 8 dots: five columns, the lowest bit at the top, the highest below the base line.
using Glyph = std::array<std::uint8_t, 5>;
inline constexpr int kGlyphWidth = 5, kGlyphHeight = 8;
// Of printable ASCII; anything else is an empty box.
const Glyph& FindGlyph(char c);

}  // namespace troop
