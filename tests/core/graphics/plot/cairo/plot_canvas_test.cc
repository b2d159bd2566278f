#include "core/graphics/plot/cairo/plot_canvas.h"

#include <gtest/gtest.h>

#include <array>

#include "core/graphics/plot/cairo/plot_legend.h"

namespace troop {
namespace {

using Rgb = std::array<int, 3>;

Rgb At(const Picture& picture, int x, int y) {
  const std::uint8_t* p = &picture.rgb[std::size_t(3) * std::size_t(y * picture.width + x)];
  return {p[0], p[1], p[2]};
}

Picture Pixels(PlotCanvas* canvas) {
  Result<Picture> picture = canvas->TakePixels();
  EXPECT_TRUE(picture.ok()) << picture.status().ToString();
  return picture.ok() ? std::move(*picture) : Picture{};
}

TEST(PlotCanvasTest, FillsBoxesAndBlends) {
  PlotCanvas canvas(PlotCanvas::Format::kPixels, 20, 10);
  canvas.FillBox({2, 3, 5, 6}, {10, 20, 30});
  canvas.FillBox({10, 0, 20, 10}, {0, 0, 0}, 0.5);
  const Picture picture = Pixels(&canvas);
  EXPECT_EQ(picture.width, 20);
  EXPECT_EQ(picture.height, 10);
  EXPECT_EQ(At(picture, 0, 0), (Rgb{255, 255, 255}));
  EXPECT_EQ(At(picture, 2, 3), (Rgb{10, 20, 30})) << "red comes first";
  EXPECT_EQ(At(picture, 4, 5), (Rgb{10, 20, 30}));
  EXPECT_EQ(At(picture, 5, 6), (Rgb{255, 255, 255}));
  EXPECT_NEAR(At(picture, 15, 5)[0], 127, 1);
}

TEST(PlotCanvasTest, LinesAreSmoothAndPointsAreDots) {
  PlotCanvas canvas(PlotCanvas::Format::kPixels, 40, 20);
  const PlotPoint slope[] = {{2, 2}, {30, 12}};
  canvas.DrawLine(slope, {.color = {0, 0, 0}, .width = 2});
  const PlotPoint dot[] = {{35.5, 15.5}};
  canvas.DrawLine(dot, {.color = {0, 0, 0}, .width = 5});
  const Picture picture = Pixels(&canvas);
  EXPECT_EQ(At(picture, 35, 15), (Rgb{0, 0, 0}));
  EXPECT_EQ(At(picture, 35, 19), (Rgb{255, 255, 255}));
  int gray = 0;
  for (int x = 0; x < 32; ++x) {
    for (int y = 0; y < 20; ++y) {
      const int value = At(picture, x, y)[0];
      gray += value > 20 && value < 235;
    }
  }
  EXPECT_GT(gray, 10) << "edges have intermediate values";
}

// Dark pixels of a text at (20, 20) in a canvas of 40 x 40, in the four quarters around that point.
std::array<int, 4> InkAround(const PlotText& style) {
  PlotCanvas canvas(PlotCanvas::Format::kPixels, 40, 40);
  canvas.DrawText({20, 20}, "H", style);
  const Picture picture = Pixels(&canvas);
  std::array<int, 4> ink{};
  for (int y = 0; y < 40; ++y) {
    for (int x = 0; x < 40; ++x) {
      ink[std::size_t(2 * (y >= 20) + (x >= 20))] += At(picture, x, y)[0] < 200;
    }
  }
  return ink;
}

TEST(PlotCanvasTest, TextIsAboveItsBaselineAtItsAnchor) {
  const auto start = InkAround({.size = 14});
  EXPECT_GT(start[1], 5);
  EXPECT_EQ(start[0] + start[2] + start[3], 0);
  const auto end = InkAround({.size = 14, .anchor = PlotText::Anchor::kEnd});
  EXPECT_GT(end[0], 5);
  EXPECT_EQ(end[1] + end[2] + end[3], 0);
  const auto upward = InkAround({.size = 14, .upward = true});
  EXPECT_GT(upward[0], 5) << "above the point, and to the left of its baseline";
  EXPECT_EQ(upward[1] + upward[2] + upward[3], 0);
}

TEST(PlotCanvasTest, TextWidthGrowsWithTextAndSize) {
  PlotCanvas canvas(PlotCanvas::Format::kSvg, 40, 40);
  EXPECT_EQ(canvas.TextWidth("", 13), 0);
  const double one = canvas.TextWidth("m", 13);
  EXPECT_GT(one, 3);
  EXPECT_NEAR(canvas.TextWidth("mm", 13), 2 * one, 0.5);
  EXPECT_NEAR(canvas.TextWidth("m", 26), 2 * one, 0.5);
  EXPECT_GT(canvas.TextWidth("\xff", 13), 0) << "invalid UTF-8 does not fail";
  EXPECT_TRUE(canvas.TakeSvg().ok());
}

TEST(PlotLegendTest, KeepsToItsLargestSize) {
  PlotCanvas canvas(PlotCanvas::Format::kPixels, 400, 400);
  const PlotLegend small({{.name = "a"}, {.name = "b"}}, 300, 300, &canvas);
  EXPECT_LT(small.width(), 100);
  EXPECT_LT(small.height(), 60);
  std::vector<PlotLegend::Entry> many(40, {.name = std::string(500, 'w')});
  const PlotLegend large(many, 200, 300, &canvas);
  EXPECT_LE(large.width(), 200);
  EXPECT_LE(large.height(), 300.001);
}

}  // namespace
}  // namespace troop
