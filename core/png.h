#pragma once

#include "core/buffer.h"
#include "core/picture.h"

namespace troop {

// A PNG file (RFC 2083): 8 bits per channel, not interlaced, no filter: drawings and grids, which
// repeat whole rows, become smallest so. REQUIRES: width, height >= 1 and rgb of that size.
Buffer EncodePng(const Picture& picture);

}  // namespace troop
