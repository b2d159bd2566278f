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

// Fraction of each pixel that a shape covers. Overlapping strokes of one shape do not add up.
class Coverage {
 public:
  Coverage(int width, int height) : width_(width), height_(height) {
    share_.resize(std::size_t(width) * std::size_t(height));
  }
  // Adds a line with round ends; pixel centers are at integer coordinates.
  void Stroke(double x0, double y0, double x1, double y1, double thickness);
  // Adds the column x from `top` to `bottom`, which may be fractional.
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
  // Draws text with `scale` pixels per dot. Text starts at its upper left corner; upward text reads
  // from bottom to top and starts at its lower left corner.
  void Text(int left, int top, std::string_view text, int scale, Ink ink);
  void TextUpward(int left, int bottom, std::string_view text, int scale, Ink ink);
  // Width of the text in pixels.
  static int TextWidth(std::string_view text, int scale);
  Picture Take() && { return std::move(picture_); }

 private:
  Picture picture_;
};

}  // namespace troop
