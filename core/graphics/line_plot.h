#pragma once

#include <string>
#include <vector>

#include "core/base/buffer.h"
#include "core/graphics/picture.h"

namespace troop {

// True if a value can be drawn. Non-finite values, and values so large that a span loses its width
// in a double, interrupt their line.
inline bool IsDrawable(double value) { return value >= -1e300 && value <= 1e300; }

// A line plot: lines through points, over axes with ticks at round numbers.
struct LinePlot {
  struct Series {
    std::string name;            // empty: not in the legend
    std::vector<double> xs, ys;  // of equal length; values that are not drawable interrupt the line
    std::vector<double> low, high;  // a band around the line; empty, or of equal length
    bool faint = false;             // a thin, pale line
    int color = -1;                 // index of the color, modulo eight; -1: index of the series
  };
  std::string title, x_label, y_label;  // ASCII
  std::vector<std::string> caption;     // lines in small text at the bottom
  std::vector<Series> series;           // colors repeat after eight
  int width = 960, height = 540;        // pixels
};

// Renders the plot. O(pixels + points). REQUIRES: sizes as stated above; width >= 320, height >=
// 200, and room for the caption.
Picture RenderLinePlot(const LinePlot& plot);
// Renders the plot as a PNG file.
Buffer DrawLinePlot(const LinePlot& plot);

// Renders the plot as an SVG file with selectable text. O(points).
std::string SvgLinePlot(const LinePlot& plot);

// Returns about `count` round numbers (1, 2 or 5 times a power of ten) within [low, high].
// REQUIRES: low < high, both finite.
std::vector<double> NiceTicks(double low, double high, int count);
// Formats a tick label such as "0", "2.5k", "1M" or "-0.05", with as many digits as ticks at
// distance `step` require. `largest`: largest magnitude on the axis.
std::string TickText(double value, double step, double largest);

}  // namespace troop
