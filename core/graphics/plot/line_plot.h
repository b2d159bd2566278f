#pragma once

#include <string>
#include <vector>

#include "core/base/buffer.h"
#include "core/base/status.h"
#include "core/graphics/picture.h"

namespace troop {

// A line plot: lines through points, over axes with ticks at round numbers. Texts are UTF-8.
struct LinePlot {
  struct Series {
    std::string name;            // empty: not in the legend
    std::vector<double> xs, ys;  // of equal length; values that are not drawable interrupt the line
    std::vector<double> low, high;  // a band around the line; empty, or of equal length
    bool faint = false;             // a thin, pale line
    int color = -1;                 // index of the color, modulo eight; -1: index of the series
    std::string band_name;          // of the band; empty: not in the legend
  };
  std::string title, x_label, y_label;
  std::vector<std::string> caption;  // lines in small text at the bottom
  std::vector<Series> series;        // colors repeat after eight
  int width = 960, height = 540;     // pixels
};

// True if this build has Cairo, which draws the plots.
bool HasPlots();
// Ok if this build has plots. Errors: kFailedPrecondition, with the remedy. All functions below
// return the same error.
Status CheckPlots();

// Renders the plot. O(pixels + points). REQUIRES: sizes as stated above; width >= 320, height >=
// 200, and room for the caption. Texts have the font of the machine, so pixels of texts are equal
// only between machines with equal fonts. Errors: kInternal: Cairo failed (memory).
Result<Picture> RenderLinePlot(const LinePlot& plot);
// Renders the plot as a PNG file.
Result<Buffer> DrawLinePlot(const LinePlot& plot);
// Renders the plot as an SVG file with selectable text. O(points).
Result<std::string> SvgLinePlot(const LinePlot& plot);

}  // namespace troop
