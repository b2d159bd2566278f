#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/graphics/picture.h"

namespace troop {

// An RGB color.
struct Ink {
  std::uint8_t red = 0, green = 0, blue = 0;
};

// Fraction of each pixel that a shape covers. Where strokes of one shape overlap, the largest
// fraction counts, not the sum.
class Coverage {
 public:
  Coverage(int width, int height) : width_(width), height_(height) {
    share_.resize(std::size_t(width) * std::size_t(height));
  }
  // Adds a line with round ends; pixel centers are at integer coordinates.
  void Stroke(double x0, double y0, double x1, double y1, double thickness);
  // Adds pixel column x between the heights `top` and `bottom`, which may be fractional: here pixel
  // y spans [y, y + 1).
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

// An image to draw on. All drawing is clipped to it.
class Raster {
 public:
  Raster(int width, int height, Ink background);
  void FillBox(int left, int top, int width, int height, Ink ink);
  // Draws a shape; `strength` 1 is opaque. REQUIRES: equal sizes.
  void Blend(const Coverage& coverage, Ink ink, float strength = 1);
  // Draws text; a dot of the font is a square of `scale` pixels. (left, top) is the upper left
  // corner of the text. TextUpward draws it rotated, to be read from bottom to top; (left, bottom)
  // is its lower left corner.
  void Text(int left, int top, std::string_view text, int scale, Ink ink);
  void TextUpward(int left, int bottom, std::string_view text, int scale, Ink ink);
  // Width of the text in pixels.
  static int TextWidth(std::string_view text, int scale);
  Picture Take() && { return std::move(picture_); }

 private:
  Picture picture_;
};

}  // namespace troop
