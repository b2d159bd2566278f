#pragma once

#include <span>

#include "core/base/buffer.h"
#include "core/graphics/picture.h"

namespace troop {

// Encodes an animated GIF (GIF89a, repeated forever). Animations with at most 256 colors keep them
// exactly; others are rounded to a cube of 6 x 7 x 6 colors. Only the changed rectangle of a frame
// is stored. `delay_cs`: hundredths of a second per frame; viewers slow down values below 2.
// O(pixels). REQUIRES: at least one frame; equal sizes within [1, 65535], rgb of that size.
Buffer EncodeGif(std::span<const Picture> frames, int delay_cs);

}  // namespace troop
