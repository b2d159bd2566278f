// Pictures of board games, without antialiasing.

#include "core/graphics/grid_picture.h"

#include "core/base/check.h"

namespace troop {

// Draws each cell as a square of kCellPixels; `colors` is [rows, columns].
Picture DrawBoard(int rows, int columns, const std::vector<Color>& colors) {
  TROOP_CHECK(int(colors.size()) == rows * columns, "{} colors for {} x {} cells", colors.size(),
              rows, columns);
  Picture picture{columns * kCellPixels, rows * kCellPixels, {}};
  picture.rgb.reserve(std::size_t(3) * picture.width * picture.height);
  for (int y = 0; y < picture.height; ++y) {
    for (int x = 0; x < picture.width; ++x) {
      const Color& color = colors[y / kCellPixels * columns + x / kCellPixels];
      picture.rgb.insert(picture.rgb.end(), {color.red, color.green, color.blue});
    }
  }
  return picture;
}

}  // namespace troop
