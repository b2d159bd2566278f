#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/base/buffer.h"
#include "core/graphics/picture.h"

namespace troop {

// Encodes frames of equal size as an endlessly looping GIF.
Buffer AnimatedGif(const std::vector<Picture>& frames, double frames_per_s);
inline constexpr std::size_t kStripFramesMax = 64;
// Encodes up to kStripFramesMax evenly chosen frames as a PNG with rows of 8. REQUIRES: frames.
Buffer PngStrip(const std::vector<Picture>& frames);
// Renders a picture for a terminal, two pixels per character: an upper half block in the color of
// the upper pixel, on a background in the color of the lower one. Scales down a picture larger than
// `columns` x `rows` characters. REQUIRES: columns >= 1.
std::string HalfBlocks(const Picture& picture, int columns, int rows);

}  // namespace troop
