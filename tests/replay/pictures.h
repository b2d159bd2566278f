#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/philox.h"

namespace troop {

// Pictures as of a game: a fixed background of flat areas, and a few small things that move over
// it. Picture i of a seed is always the same. [frames, height, width] u8.
inline std::vector<std::byte> GamePictures(int frames, int height = 84, int width = 84,
                                           std::uint64_t seed = 1) {
  Rng rng({.run_seed = seed, .purpose = Purpose::kTest});
  std::vector<std::byte> background(std::size_t(height) * std::size_t(width));
  const auto fill = [=](std::byte* picture, int top, int left, int size, std::byte value) {
    for (int y = top; y < std::min(top + size, height); ++y) {
      for (int x = left; x < std::min(left + size, width); ++x) picture[y * width + x] = value;
    }
  };
  for (int i = 0; i < 30; ++i) {
    const int top = int(rng.Below(std::uint32_t(height))),
              left = int(rng.Below(std::uint32_t(width)));
    fill(background.data(), top, left, 20, std::byte(rng.Below(256)));
  }
  std::vector<std::byte> pictures;
  for (int t = 0; t < frames; ++t) {
    std::vector<std::byte> picture = background;
    for (int thing = 0; thing < 6; ++thing) {
      const int step = int(rng.Below(3));
      fill(picture.data(), (thing * 13 + t * (thing % 3)) % height,
           (thing * 7 + t * (1 + thing % 2) + step) % width, 3, std::byte(200 + thing));
    }
    pictures.insert(pictures.end(), picture.begin(), picture.end());
  }
  return pictures;
}

inline std::vector<std::byte> Noise(std::size_t bytes, std::uint64_t seed = 2) {
  Rng rng({.run_seed = seed, .purpose = Purpose::kTest});
  std::vector<std::byte> noise(bytes);
  for (std::byte& byte : noise) byte = std::byte(rng.Below(256));
  return noise;
}

}  // namespace troop
