#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/buffer.h"
#include "core/picture.h"

namespace troop {

// Frames of equal size → a GIF that repeats for ever.
Buffer AnimatedGif(const std::vector<Picture>& frames, double frames_per_s);
inline constexpr std::size_t kStripFramesMax = 64;
// Up to kStripFramesMax evenly chosen frames in rows of 8, as PNG.
Buffer PngStrip(const std::vector<Picture>& frames);
// For a terminal, two pixels a character: the upper half block in the colour of the one, on the
// colour of the other. A picture that is larger than `columns` times `rows` characters is made
// smaller. REQUIRES: columns >= 1.
std::string HalfBlocks(const Picture& picture, int columns, int rows);

}  // namespace troop
