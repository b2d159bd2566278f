#pragma once

#include <cstdint>
#include <vector>

namespace troop {

// RGB, [height, width, 3] u8, the top row first. Empty: there is none.
struct Picture {
  int width = 0, height = 0;
  std::vector<std::uint8_t> rgb;
  bool operator==(const Picture&) const = default;
};

}  // namespace troop
