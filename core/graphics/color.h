#pragma once

#include <cstdint>

namespace troop {

// RGB color, 8 bits per channel (sRGB).
struct Color {
  std::uint8_t red = 0, green = 0, blue = 0;
};

}  // namespace troop
