#pragma once

#include <array>
#include <cstdint>

namespace troop {

// A glyph of 5 x 8 dots: five columns, with the lowest bit at the top and the highest below the
// baseline.
using Glyph = std::array<std::uint8_t, 5>;
inline constexpr int kGlyphWidth = 5, kGlyphHeight = 8;
// Returns the glyph of a printable ASCII character; an empty box for all other characters.
const Glyph& FindGlyph(char c);

}  // namespace troop
