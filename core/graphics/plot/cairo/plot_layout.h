#pragma once

#include "core/graphics/plot/cairo/plot_canvas.h"
#include "core/graphics/plot/line_plot.h"
#include "core/graphics/plot/value_axis.h"

namespace troop {

// Where the parts of a plot are, and how values become positions. Immutable.
class PlotLayout {
 public:
  // Sizes of texts in pixels per em.
  static constexpr double kTickSize = 13, kLabelSize = 15, kTitleSize = 18, kCaptionSize = 11;
  static constexpr double kMargin = 12, kGap = 6;  // pixels, around the plot and between its parts
  static constexpr double kTickLength = 4, kCaptionRow = 15;

  // Computes the layout; `right` pixels of the plot's width stay free for a legend next to the
  // axes. REQUIRES: as RenderLinePlot.
  PlotLayout(const LinePlot& plot, double right, PlotCanvas* canvas);
  const PlotBox& axes() const { return axes_; }  // the area of the lines
  const ValueAxis& x() const { return x_; }
  const ValueAxis& y() const { return y_; }
  double y_texts() const { return y_texts_; }  // width of the widest label of the y axis
  double caption_top() const { return caption_top_; }
  double X(double value) const { return axes_.left + x_.Share(value) * axes_.width(); }
  double Y(double value) const { return axes_.bottom - y_.Share(value) * axes_.height(); }

 private:
  PlotBox axes_;
  ValueAxis x_, y_;
  double y_texts_ = 0, caption_top_ = 0;
};

// The span of all drawable x values; that of y values, with those of bands. REQUIRES: columns of
// equal length.
ValueSpan SpanOfXs(const LinePlot& plot);
ValueSpan SpanOfYs(const LinePlot& plot);

}  // namespace troop
