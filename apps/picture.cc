#include "apps/picture.h"

#include <algorithm>
#include <cmath>

#include "core/gif.h"
#include "core/png.h"

namespace troop {

Buffer AnimatedGif(const std::vector<Picture>& frames, double frames_per_s) {
  return EncodeGif(frames, std::max(1, int(std::lround(100 / frames_per_s))));
}

Buffer PngStrip(const std::vector<Picture>& frames) {
  constexpr std::size_t kFramesMax = 64, kColumns = 8;
  const std::size_t count = std::min(frames.size(), kFramesMax);
  const std::size_t columns = std::min(count, kColumns);
  const std::size_t rows = (count + columns - 1) / columns;
  constexpr int kGap = 4;  // white pixels between frames
  const int width = frames[0].width, height = frames[0].height;
  Picture strip{
      .width = (width + kGap) * int(columns), .height = (height + kGap) * int(rows), .rgb = {}};
  strip.rgb.assign(std::size_t(3 * strip.width * strip.height), 255);
  for (std::size_t i = 0; i < count; ++i) {
    const Picture& frame = frames[i * frames.size() / count];
    for (int y = 0; y < height; ++y) {
      const auto* from = frame.rgb.data() + std::size_t(3 * width * y);
      const std::size_t row = (i / columns) * std::size_t(height + kGap) + std::size_t(y);
      const std::size_t column = (i % columns) * std::size_t(width + kGap);
      std::copy_n(from, 3 * width,
                  strip.rgb.data() + 3 * (row * std::size_t(strip.width) + column));
    }
  }
  return EncodePng(strip);
}

}  // namespace troop
