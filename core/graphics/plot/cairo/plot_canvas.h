#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/base/status.h"
#include "core/graphics/color.h"
#include "core/graphics/picture.h"

namespace troop {

// A position in pixels from the upper left corner: x to the right, y down. Pixel (0, 0) covers
// [0, 1) x [0, 1).
struct PlotPoint {
  double x = 0, y = 0;
};

// A rectangle in pixels.
struct PlotBox {
  double left = 0, top = 0, right = 0, bottom = 0;
  double width() const { return right - left; }
  double height() const { return bottom - top; }
};

// The pen of a line.
struct PlotPen {
  Color color;
  double width = 1;    // pixels
  double opacity = 1;  // 0 to 1
};

// Size and placement of a text.
struct PlotText {
  enum class Anchor { kStart, kMiddle, kEnd };
  double size = 13;                // pixels per em
  Anchor anchor = Anchor::kStart;  // the part of the text that is at the given point
  Color color = {38, 38, 38};
  bool upward = false;  // rotated by 90 degrees, to be read from bottom to top
};

// An anti-aliased drawing with real fonts, by Cairo: pixels, or an SVG file. In SVG the texts are
// text elements (Cairo itself would write outlines of glyphs), so that they stay searchable; they
// are above all shapes. The only wrapper of Cairo. One thread at a time uses a canvas; threads may
// use different ones. A failure of Cairo is kept until the Take call.
class PlotCanvas {
 public:
  enum class Format { kPixels, kSvg };
  // Makes a white canvas. REQUIRES: 0 < width, height <= 16384.
  PlotCanvas(Format format, int width, int height);
  ~PlotCanvas();
  PlotCanvas(PlotCanvas&&) = delete;

  void FillBox(const PlotBox& box, Color color, double opacity = 1);
  // Fills a closed polygon; parts that overlap themselves are filled once.
  void FillPolygon(std::span<const PlotPoint> points, Color color, double opacity);
  // Draws a line with round ends and joints; a single point becomes a dot.
  void DrawLine(std::span<const PlotPoint> points, const PlotPen& pen);
  // Draws a text whose baseline is at the point. Control characters become spaces, bytes that are
  // not UTF-8 question marks.
  void DrawText(PlotPoint at, std::string_view text, const PlotText& style);
  // Width of a text in pixels.
  double TextWidth(std::string_view text, double size);

  // Return the drawing. REQUIRES: the format of that name; the last call on this canvas. Errors:
  // kInternal: Cairo failed (memory).
  Result<Picture> TakePixels();
  Result<std::string> TakeSvg();

 private:
  struct Drawing;
  std::unique_ptr<Drawing> drawing_;
};

}  // namespace troop
