#pragma once

#include "core/base/buffer.h"
#include "core/graphics/picture.h"

namespace troop {

// Encodes a PNG file (RFC 2083): 8 bits per channel, not interlaced. Without filters, which is
// smallest for drawings and grids with many identical rows. REQUIRES: width, height >= 1 and rgb of
// that size.
Buffer EncodePng(const Picture& picture);

}  // namespace troop
