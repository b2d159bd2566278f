#include "core/graphics/world_canvas.h"

#include <gtest/gtest.h>

#include "core/graphics/grid_picture.h"

namespace troop {
namespace {

constexpr Color kWhite{255, 255, 255}, kRed{200, 0, 0};

// Rows of '#' (red) and '.' (the background).
std::string Text(const Picture& picture) {
  std::string text;
  for (int y = 0; y < picture.height; ++y) {
    for (int x = 0; x < picture.width; ++x) {
      text += picture.rgb[3 * (y * picture.width + x) + 1] == 0 ? '#' : '.';
    }
    text += '\n';
  }
  return text;
}

TEST(CanvasTest, ShapesCoverPixelsWithCentersInside) {
  Canvas canvas(6, 4, {0, 6, 0, 4}, kWhite);
  canvas.Rectangle(1, 3, 2, 4, kRed);
  EXPECT_EQ(Text(canvas.Take()), ".##...\n.##...\n......\n......\n");
  Canvas disc(5, 5, {-2.5, 2.5, -2.5, 2.5}, kWhite);
  disc.Disc(0, 0, 1.1, kRed);
  EXPECT_EQ(Text(disc.Take()), ".....\n..#..\n.###.\n..#..\n.....\n");
  Canvas line(4, 4, {0, 4, 0, 4}, kWhite);
  line.Line(0, 0, 4, 4, 0.2, kRed);
  EXPECT_EQ(Text(line.Take()), "...#\n..#.\n.#..\n#...\n");
}

TEST(CanvasTest, ClipsShapesOutside) {
  Canvas canvas(3, 3, {0, 3, 0, 3}, kWhite);
  canvas.Rectangle(-100, 0.9, -100, 100, kRed);
  canvas.Disc(50, 50, 3, kRed);
  canvas.Line(-9, 1.5, -5, 1.5, 1, kRed);
  canvas.Rectangle(7, 9, 0, 3, kRed);
  EXPECT_EQ(Text(canvas.Take()), "#..\n#..\n#..\n");
}

TEST(GridPictureTest, DrawsEveryCellAsSquare) {
  const Picture picture = DrawBoard(2, 3, {kWhite, kRed, kWhite, kRed, kRed, kWhite});
  EXPECT_EQ(picture.width, 3 * kCellPixels);
  EXPECT_EQ(picture.height, 2 * kCellPixels);
  const std::string text = Text(picture);
  const std::string upper = std::string(8, '.') + std::string(8, '#') + std::string(8, '.') + "\n";
  const std::string lower = std::string(16, '#') + std::string(8, '.') + "\n";
  std::string want;
  for (int i = 0; i < 8; ++i) want += upper;
  for (int i = 0; i < 8; ++i) want += lower;
  EXPECT_EQ(text, want);
}

}  // namespace
}  // namespace troop
