#pragma once

#include <string>
#include <vector>

#include "core/graphics/plot/cairo/plot_canvas.h"

namespace troop {

// The legend of a plot: a framed list of names, each next to a sample of its line or band.
class PlotLegend {
 public:
  struct Entry {
    std::string name;
    PlotPen pen;        // of the line; or the color and opacity of a band
    bool band = false;  // a filled sample instead of a line
  };
  // Computes the size. Names are cut so that the legend is not wider than `width_max`, and the text
  // becomes smaller where the entries need more than `height_max`. The canvas outlives the legend.
  PlotLegend(std::vector<Entry> entries, double width_max, double height_max, PlotCanvas* canvas);
  bool empty() const { return entries_.empty(); }
  double width() const { return width_; }
  double height() const { return row_ * double(entries_.size()) + 2 * kPadding; }
  // Draws it with its upper left corner at the point.
  void Draw(PlotPoint corner) const;

 private:
  static constexpr double kPadding = 6, kSample = 26;  // pixels
  std::vector<Entry> entries_;
  PlotCanvas* canvas_;
  double size_ = 13, row_ = 20, width_ = 0;
};

}  // namespace troop
