#pragma once

#include <cstdint>

#include "core/picture.h"

namespace troop {

struct Color {
  std::uint8_t red = 0, green = 0, blue = 0;
};

// Draws simple shapes into a picture. World coordinates: x to the right, y up; the window is the
// part of the world that is seen, and what lies outside is cut off. A pixel is painted when its
// centre is inside the shape: no blending.
class Canvas {
 public:
  struct Window {
    double left, right, bottom, top;
  };
  Canvas(int width, int height, const Window& window, Color background);

  // REQUIRES for all: lengths >= 0.
  void Rectangle(double left, double right, double bottom, double top, Color color);
  void Disc(double x, double y, double radius, Color color);
  // A thick line with round ends.
  void Line(double x0, double y0, double x1, double y1, double thickness, Color color);
  // REQUIRES: called last.
  Picture Take() { return std::move(picture_); }

 private:
  template <class Inside>
  void Paint(double left, double right, double bottom, double top, Color color, Inside inside);
  Picture picture_;
  Window window_;
};

}  // namespace troop
