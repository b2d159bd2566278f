#pragma once

#include <cstdint>
#include <vector>

namespace troop {

// An RGB image: [height, width, 3] u8, top row first; may be empty.
struct Picture {
  int width = 0, height = 0;
  std::vector<std::uint8_t> rgb;
  bool operator==(const Picture&) const = default;
};

}  // namespace troop
