// Canvas: point-sampled shapes, one test per pixel of the bounding box.

#include "core/graphics/world_canvas.h"

#include <algorithm>
#include <cmath>

namespace troop {

Canvas::Canvas(int width, int height, const Window& window, Color background) : window_(window) {
  picture_ = {width, height, std::vector<std::uint8_t>(std::size_t(3) * width * height)};
  Rectangle(window.left, window.right, window.bottom, window.top, background);
}

// Paints the pixels of a bounding box whose centers satisfy inside(x, y).
template <class Inside>
void Canvas::Paint(double left, double right, double bottom, double top, Color color,
                   Inside inside) {
  const double pixel_x = (window_.right - window_.left) / picture_.width;
  const double pixel_y = (window_.top - window_.bottom) / picture_.height;
  // Clamped to the picture, so that shapes outside of the window cost nothing.
  const auto pixel = [](double position, int end) {
    return int(std::floor(std::clamp(position, 0.0, double(end))));
  };
  const int first_column = pixel((left - window_.left) / pixel_x, picture_.width);
  const int last_column = pixel((right - window_.left) / pixel_x, picture_.width - 1);
  const int first_row = pixel((window_.top - top) / pixel_y, picture_.height);
  const int last_row = pixel((window_.top - bottom) / pixel_y, picture_.height - 1);
  for (int row = first_row; row <= last_row; ++row) {
    // Pixel centers in world coordinates; row 0 is at the top.
    const double y = window_.top - (row + 0.5) * pixel_y;
    for (int column = first_column; column <= last_column; ++column) {
      if (!inside(window_.left + (column + 0.5) * pixel_x, y)) continue;
      std::uint8_t* rgb = &picture_.rgb[3 * (std::size_t(row) * picture_.width + column)];
      rgb[0] = color.red;
      rgb[1] = color.green;
      rgb[2] = color.blue;
    }
  }
}

void Canvas::Rectangle(double left, double right, double bottom, double top, Color color) {
  Paint(left, right, bottom, top, color,
        [&](double x, double y) { return x >= left && x <= right && y >= bottom && y <= top; });
}

// A disc is a line of length 0 with round ends.
void Canvas::Disc(double x, double y, double radius, Color color) {
  Line(x, y, x, y, 2 * radius, color);
}

void Canvas::Line(double x0, double y0, double x1, double y1, double thickness, Color color) {
  const double radius = thickness / 2, dx = x1 - x0, dy = y1 - y0;
  // A pixel is inside if its distance to the nearest point of the segment is at most the radius.
  const double length2 = dx * dx + dy * dy;
  Paint(std::min(x0, x1) - radius, std::max(x0, x1) + radius, std::min(y0, y1) - radius,
        std::max(y0, y1) + radius, color, [&](double x, double y) {
          const double along =
              length2 == 0 ? 0 : std::clamp(((x - x0) * dx + (y - y0) * dy) / length2, 0.0, 1.0);
          return std::hypot(x - x0 - along * dx, y - y0 - along * dy) <= radius;
        });
}

}  // namespace troop
