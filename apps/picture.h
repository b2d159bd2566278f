#pragma once

#include <vector>

#include "core/buffer.h"
#include "core/picture.h"

namespace troop {

// Frames of equal size → a GIF that repeats for ever.
Buffer AnimatedGif(const std::vector<Picture>& frames, double frames_per_s);
// Up to 64 evenly chosen frames in rows of 8, as PNG.
Buffer PngStrip(const std::vector<Picture>& frames);

}  // namespace troop
