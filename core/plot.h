#pragma once

#include <string>
#include <vector>

#include "core/buffer.h"
#include "core/picture.h"

namespace troop {

// A number that has a place: one that is not finite, or so large that a span has no width in a
// double, breaks its line.
inline bool IsDrawable(double value) { return value >= -1e300 && value <= 1e300; }

// Lines through points, over axes with ticks at round numbers.
struct LinePlot {
  struct Series {
    std::string name;               // empty: it has no place in the legend
    std::vector<double> xs, ys;     // of equal length; one that is not drawable breaks the line
    std::vector<double> low, high;  // a band around the line; empty, or of equal length
    bool faint = false;             // a thin, pale line
    int color = -1;                 // of the eight, counted around; -1: its place among the series
  };
  std::string title, x_label, y_label;  // ASCII
  std::vector<std::string> caption;     // lines below all, small
  std::vector<Series> series;           // beyond eight the colours repeat
  int width = 960, height = 540;        // pixels
};

// O(pixels + points). REQUIRES: sizes as said above; width >= 320, height >= 200, and room for
// the caption.
Picture RenderLinePlot(const LinePlot& plot);
// The same as a PNG file.
Buffer DrawLinePlot(const LinePlot& plot);

// The same as an SVG file, with its texts as text. O(points).
std::string SvgLinePlot(const LinePlot& plot);

// Round numbers (1, 2 or 5 times a power of ten) within [low, high], about `count` of them.
// REQUIRES: low < high, both finite.
std::vector<double> NiceTicks(double low, double high, int count);
// "0", "2.5k", "1M", "-0.05": as many digits as neighbours `step` apart need.
std::string TickText(double value, double step, double largest);

}  // namespace troop
