#pragma once

#include <cstdint>

#include "core/graphics/color.h"
#include "core/graphics/picture.h"

namespace troop {

// Draws simple shapes into a picture. World coordinates: x to the right, y up. The window is the
// visible part of the world; everything outside is clipped. A pixel is painted if its center is
// inside the shape: no antialiasing.
class Canvas {
 public:
  struct Window {
    double left, right, bottom, top;
  };
  Canvas(int width, int height, const Window& window, Color background);

  // Filled shapes, in world coordinates. REQUIRES: lengths >= 0.
  void Rectangle(double left, double right, double bottom, double top, Color color);
  void Disc(double x, double y, double radius, Color color);
  // A thick line with round ends.
  void Line(double x0, double y0, double x1, double y1, double thickness, Color color);
  // Returns the picture. REQUIRES: the last call on this canvas.
  Picture Take() { return std::move(picture_); }

 private:
  template <class Inside>
  void Paint(double left, double right, double bottom, double top, Color color, Inside inside);
  Picture picture_;
  Window window_;
};

}  // namespace troop
