#pragma once

#include <span>

#include "core/buffer.h"
#include "core/picture.h"

namespace troop {

// An animated GIF (GIF89a, repeated for ever). Frames of at most 256 different colours keep them
// exactly; others are rounded to a cube of 6 x 7 x 6 colours. Where frames agree only what changes
// is stored. `delay_cs`: hundredths of a second per frame; viewers slow down below 2.
// O(pixels). REQUIRES: at least one frame; equal sizes within [1, 65535], rgb of that size.
Buffer EncodeGif(std::span<const Picture> frames, int delay_cs);

}  // namespace troop
