// Encodes rendered frames as GIF, PNG strip or terminal text.
#include "core/graphics/animation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/graphics/gif.h"
#include "core/graphics/png.h"

namespace troop {

Buffer AnimatedGif(const std::vector<Picture>& frames, double frames_per_s) {
  // GIF delays are whole hundredths of a second, at least one.
  return EncodeGif(frames, std::max(1, int(std::lround(100 / frames_per_s))));
}

// Frames are copied row by row into a white canvas.
Buffer PngStrip(const std::vector<Picture>& frames) {
  constexpr std::size_t kColumns = 8;
  const std::size_t count = std::min(frames.size(), kStripFramesMax);
  const std::size_t columns = std::min(count, kColumns);
  const std::size_t rows = (count + columns - 1) / columns;
  constexpr int kGap = 4;  // white pixels between frames
  const int width = frames[0].width, height = frames[0].height;
  Picture strip{
      .width = (width + kGap) * int(columns), .height = (height + kGap) * int(rows), .rgb = {}};
  strip.rgb.assign(std::size_t(3 * strip.width * strip.height), 255);
  for (std::size_t i = 0; i < count; ++i) {
    // Evenly spaced frames if there are more than the strip has room for.
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

// One character is an upper half block: the foreground is the upper pixel, the background the
// lower.
std::string HalfBlocks(const Picture& picture, int columns, int rows) {
  // Picture pixels per terminal pixel; a character is two pixels high.
  const double scale = std::max({1.0, double(picture.width) / std::max(1, columns),
                                 double(picture.height) / (2.0 * std::max(1, rows))});
  const int width = std::max(1, int(picture.width / scale));
  const int height = std::max(1, int(picture.height / scale));
  // Mean over the picture pixels of one terminal pixel (box filter), so that thin lines stay
  // visible.
  const auto pixel = [&](int x, int y) -> std::string {
    if (y >= height) return "0;0;0";
    const int x0 = int(x * scale), y0 = int(y * scale);
    const int x1 = std::clamp(int((x + 1) * scale), x0 + 1, picture.width);
    const int y1 = std::clamp(int((y + 1) * scale), y0 + 1, picture.height);
    std::array<int, 3> sum{};
    for (int j = y0; j < y1; ++j) {
      for (int i = x0; i < x1; ++i) {
        for (int c = 0; c < 3; ++c) {
          sum[std::size_t(c)] += picture.rgb[std::size_t(3 * (j * picture.width + i) + c)];
        }
      }
    }
    const int count = (x1 - x0) * (y1 - y0);
    return fmt::format("{};{};{}", sum[0] / count, sum[1] / count, sum[2] / count);
  };
  // 24-bit ANSI colors: 38;2 sets the foreground, 48;2 the background.
  std::string out;
  for (int y = 0; y < height; y += 2) {
    for (int x = 0; x < width; ++x) {
      out += fmt::format("\x1b[38;2;{}m\x1b[48;2;{}m▀", pixel(x, y), pixel(x, y + 1));
    }
    out += "\x1b[0m\n";
  }
  return out;
}

}  // namespace troop
