// Implements PlotLayout: margins from the widths of texts, and ticks whose labels do not overlap.
#include "core/graphics/plot/cairo/plot_layout.h"

#include <algorithm>

#include "core/base/check.h"

namespace troop {
namespace {

// Room for one label and a gap: x labels are wide, y labels only high.
constexpr double kPixelsPerXTick = 110, kPixelsPerYTick = 60;
constexpr int kTicksMin = 5;  // requested; NiceTicks makes at least 2 of them
constexpr double kXMargin = 0.015, kYMargin = 0.05;  // free shares of an axis at its ends

double WidestOf(const ValueAxis& axis, PlotCanvas* canvas) {
  double widest = 0;
  for (const ValueAxis::Tick& tick : axis.ticks()) {
    widest = std::max(widest, canvas->TextWidth(tick.text, PlotLayout::kTickSize));
  }
  return widest;
}

// Takes fewer ticks until labels of one row have a gap between them.
ValueAxis AxisOfWidth(const ValueSpan& span, double width, PlotCanvas* canvas) {
  int count = std::max(kTicksMin, int(width / kPixelsPerXTick));
  ValueAxis axis(span, count);
  const auto overlaps = [&] {
    // Ticks are equidistant, so one comparison with the widest label covers all pairs.
    const double distance = axis.step() / (span.high - span.low) * width;
    return WidestOf(axis, canvas) + 2 * PlotLayout::kGap > distance;
  };
  // Each request for fewer ticks may give the same step, hence the loop.
  while (count > 1 && axis.ticks().size() > 1 && overlaps()) axis = ValueAxis(span, --count);
  return axis;
}

void CheckColumns(const LinePlot::Series& series) {
  const std::size_t size = series.xs.size();
  TROOP_CHECK(size == series.ys.size(), "series \"{}\" has {} xs and {} ys", series.name, size,
              series.ys.size());
  TROOP_CHECK(
      series.low.size() == series.high.size() && (series.low.empty() || series.low.size() == size),
      "series \"{}\" has {} points and a band of {} and {}", series.name, size, series.low.size(),
      series.high.size());
}

// Calls add(series, i) for each drawable point.
template <class F>
void EachPoint(const LinePlot& plot, F add) {
  for (const LinePlot::Series& series : plot.series) {
    CheckColumns(series);
    for (std::size_t i = 0; i < series.xs.size(); ++i) {
      if (IsDrawable(series.xs[i]) && IsDrawable(series.ys[i])) add(series, i);
    }
  }
}

}  // namespace

ValueSpan SpanOfXs(const LinePlot& plot) {
  ValueSpan span;
  EachPoint(plot, [&](const LinePlot::Series& series, std::size_t i) { span.Add(series.xs[i]); });
  return span;
}

ValueSpan SpanOfYs(const LinePlot& plot) {
  // The band counts as well, or it would leave the axes.
  ValueSpan span;
  EachPoint(plot, [&](const LinePlot::Series& series, std::size_t i) {
    span.Add(series.ys[i]);
    if (series.low.empty()) return;
    span.Add(series.low[i]);
    span.Add(series.high[i]);
  });
  return span;
}

// The y axis comes first: the widths of its labels determine the width of the x axis.
PlotLayout::PlotLayout(const LinePlot& plot, double right, PlotCanvas* canvas)
    : x_({0, 1}, 1), y_({0, 1}, 1) {
  // From the bottom upward: margin, caption, label of the axis, labels of the ticks.
  caption_top_ = plot.height - kMargin - kCaptionRow * double(plot.caption.size());
  if (!plot.caption.empty()) caption_top_ -= kGap;
  axes_.top = kMargin + (plot.title.empty() ? kGap : kTitleSize + 2 * kGap);
  axes_.bottom = caption_top_ - kTickLength - kTickSize - 2 * kGap -
                 (plot.x_label.empty() ? 0 : kLabelSize + kGap);
  TROOP_CHECK(axes_.bottom > axes_.top, "a caption of {} lines leaves no room for the plot",
              plot.caption.size());
  y_ = ValueAxis(SpanOfYs(plot).Widened(kYMargin),
                 std::max(kTicksMin, int(axes_.height() / kPixelsPerYTick)));
  y_texts_ = WidestOf(y_, canvas);
  axes_.left =
      kMargin + (plot.y_label.empty() ? 0 : kLabelSize + kGap) + y_texts_ + kGap + kTickLength;
  axes_.right = plot.width - 2 * kMargin - right;
  const ValueSpan xs = SpanOfXs(plot).Widened(kXMargin);
  x_ = AxisOfWidth(xs, axes_.width(), canvas);
  // The last label may extend beyond its tick.
  if (x_.ticks().empty()) return;
  const double half = canvas->TextWidth(x_.ticks().back().text, kTickSize) / 2;
  const double beyond = X(x_.ticks().back().value) + half - (plot.width - kMargin);
  // A legend on the right leaves room for it.
  if (right == 0) axes_.right -= std::max(0.0, beyond);
}

}  // namespace troop
