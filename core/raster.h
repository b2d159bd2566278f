#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/picture.h"

namespace troop {

struct Ink {
  std::uint8_t red = 0, green = 0, blue = 0;
};

// How much of each pixel a shape covers. Several strokes of one shape don't darken each other.
class Coverage {
 public:
  Coverage(int width, int height) : width_(width), height_(height) {
    share_.resize(std::size_t(width) * std::size_t(height));
  }
  // A line with round ends, through pixel centres at whole numbers.
  void Stroke(double x0, double y0, double x1, double y1, double thickness);
  // Column x from `top` down to `bottom`; its ends may lie within a pixel.
  void FillColumn(int x, double top, double bottom);
  float At(int x, int y) const { return share_[Index(x, y)]; }
  int width() const { return width_; }
  int height() const { return height_; }

 private:
  std::size_t Index(int x, int y) const {
    return std::size_t(y) * std::size_t(width_) + std::size_t(x);
  }
  const int width_, height_;
  std::vector<float> share_;  // [height, width], 0 to 1
};

// A picture to draw on. Everything is clipped to it.
class Raster {
 public:
  Raster(int width, int height, Ink background);
  void FillBox(int left, int top, int width, int height, Ink ink);
  // `strength`: 1 covers all that is below. REQUIRES: of the same size.
  void Blend(const Coverage& coverage, Ink ink, float strength = 1);
  // `scale` pixels per dot. Text begins at (left, top); upward text reads from bottom to top, and
  // begins at its lower left corner.
  void Text(int left, int top, std::string_view text, int scale, Ink ink);
  void TextUpward(int left, int bottom, std::string_view text, int scale, Ink ink);
  static int TextWidth(std::string_view text, int scale);
  Picture Take() && { return std::move(picture_); }

 private:
  Picture picture_;
};

}  // namespace troop
