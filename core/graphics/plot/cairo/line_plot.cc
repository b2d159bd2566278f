// Implements plot/line_plot.h with Cairo: bands, lines, axes, legend and caption.
#include "core/graphics/plot/line_plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "core/base/check.h"
#include "core/graphics/plot/cairo/plot_canvas.h"
#include "core/graphics/plot/cairo/plot_layout.h"
#include "core/graphics/plot/cairo/plot_legend.h"
#include "core/graphics/png.h"

namespace troop {
namespace {

constexpr Color kText{38, 38, 38}, kFrame{96, 96, 96}, kGrid{230, 230, 230};
// Distinguishable with color blindness (Okabe & Ito 2008); the yellow is darker for a white
// background.
constexpr std::array<Color, 8> kColors = {{{0, 114, 178},
                                           {213, 94, 0},
                                           {0, 158, 115},
                                           {204, 121, 167},
                                           {230, 159, 0},
                                           {86, 180, 233},
                                           {160, 140, 0},
                                           {0, 0, 0}}};
constexpr double kLineWidth = 2.2, kFaintWidth = 1.2, kFaintOpacity = 0.5, kBandOpacity = 0.2;
constexpr double kDotPerWidth = 3;  // diameter of an isolated point
// Largest width of the legend, as a share of the axes: in a corner of them, and next to them.
constexpr double kCornerShareMax = 0.6, kAsideShareMax = 0.35;

using Points = std::vector<PlotPoint>;

// The explicit color of a series, or the one of its index.
Color ColorOf(const LinePlot::Series& series, std::size_t index) {
  return kColors[(series.color < 0 ? index : std::size_t(series.color)) % kColors.size()];
}

PlotPen PenOf(const LinePlot::Series& series, std::size_t index) {
  return {.color = ColorOf(series, index),
          .width = series.faint ? kFaintWidth : kLineWidth,
          .opacity = series.faint ? kFaintOpacity : 1};
}

// Splits the indices of a series into runs [first, end) of those that can be drawn.
template <class F>
std::vector<std::pair<std::size_t, std::size_t>> RunsOf(std::size_t size, F drawable) {
  std::vector<std::pair<std::size_t, std::size_t>> runs;
  for (std::size_t i = 0; i < size; ++i) {
    if (!drawable(i)) continue;
    if (runs.empty() || runs.back().second != i) runs.push_back({i, i});
    runs.back().second = i + 1;
  }
  return runs;
}

// Keeps the first, lowest, highest and last point of each pixel column: the line looks the same,
// and the effort of anti-aliasing no longer grows with the number of points.
Points Thinned(const Points& points) {
  Points kept;
  for (std::size_t begin = 0; begin < points.size();) {
    std::size_t end = begin, low = begin, high = begin;
    const double column = std::floor(points[begin].x);
    for (; end < points.size() && std::floor(points[end].x) == column; ++end) {
      if (points[end].y < points[low].y) low = end;
      if (points[end].y > points[high].y) high = end;
    }
    std::array<std::size_t, 4> all = {begin, low, high, end - 1};
    std::ranges::sort(all);
    const auto last = std::ranges::unique(all).begin();
    for (auto i = all.begin(); i != last; ++i) kept.push_back(points[*i]);
    begin = end;
  }
  return kept;
}

// True if the segment from a to b touches the box (Liang and Barsky 1984).
bool Touches(PlotPoint a, PlotPoint b, const PlotBox& box) {
  double enter = 0, leave = 1;
  const auto clip = [&](double delta, double room) {  // the part with t * delta <= room
    if (delta == 0) return room >= 0;
    const double t = room / delta;
    (delta < 0 ? enter : leave) = delta < 0 ? std::max(enter, t) : std::min(leave, t);
    return enter <= leave;
  };
  const double dx = b.x - a.x, dy = b.y - a.y;
  return clip(-dx, a.x - box.left) && clip(dx, box.right - a.x) && clip(-dy, a.y - box.top) &&
         clip(dy, box.bottom - a.y);
}

// Draws the parts of a plot.
class Plotter {
 public:
  Plotter(const LinePlot& plot, PlotCanvas* canvas)
      : plot_(plot), canvas_(canvas), layout_(plot, 0, canvas), legend_({}, 0, 0, canvas) {
    PlaceLegend();
  }

  // Order: bands below lines, and lines below axes, legend and caption.
  void Draw() {
    DrawGrid();
    for (std::size_t i = 0; i < plot_.series.size(); ++i) DrawBands(i);
    for (std::size_t i = 0; i < plot_.series.size(); ++i) DrawSeries(i);
    DrawFrame();
    DrawLabels();
    if (!legend_.empty()) legend_.Draw(legend_corner_);
  }

 private:
  // Entries of named series and bands. A single one needs none, because the title describes it.
  static std::vector<PlotLegend::Entry> EntriesOf(const LinePlot& plot) {
    std::vector<PlotLegend::Entry> entries;
    for (std::size_t i = 0; i < plot.series.size(); ++i) {
      const LinePlot::Series& series = plot.series[i];
      if (!series.name.empty()) entries.push_back({series.name, PenOf(series, i)});
      if (series.band_name.empty() || series.low.empty()) continue;
      entries.push_back(
          {series.band_name, {.color = ColorOf(series, i), .opacity = kBandOpacity}, true});
    }
    if (entries.size() < 2) entries.clear();
    return entries;
  }

  // The points of each uninterrupted part of a line.
  std::vector<Points> PiecesOf(const LinePlot::Series& series,
                               const std::vector<double>& ys) const {
    std::vector<Points> pieces;
    const auto drawable = [&](std::size_t i) {
      return IsDrawable(series.xs[i]) && IsDrawable(series.ys[i]) && IsDrawable(ys[i]);
    };
    for (const auto& [first, end] : RunsOf(ys.size(), drawable)) {
      Points& piece = pieces.emplace_back();
      for (std::size_t i = first; i < end; ++i) {
        piece.push_back({layout_.X(series.xs[i]), layout_.Y(ys[i])});
      }
      piece = Thinned(piece);
    }
    return pieces;
  }

  // Chooses the corner of the axes in which the legend hides no line; without such a corner, a
  // place next to the axes.
  void PlaceLegend() {
    const PlotBox& axes = layout_.axes();
    legend_ = PlotLegend(EntriesOf(plot_), kCornerShareMax * axes.width(), axes.height(), canvas_);
    if (legend_.empty() || PlaceInCorner() == 0) return;
    legend_ = PlotLegend(EntriesOf(plot_), kAsideShareMax * axes.width(), axes.height(), canvas_);
    layout_ = PlotLayout(plot_, legend_.width(), canvas_);
    legend_corner_ = {layout_.axes().right + PlotLayout::kMargin, layout_.axes().top};
  }

  // Returns the number of segments that it hides.
  std::size_t PlaceInCorner() {
    constexpr double kInset = 8;
    const PlotBox& axes = layout_.axes();
    std::size_t fewest = std::numeric_limits<std::size_t>::max();
    for (const double top : {axes.top + kInset, axes.bottom - kInset - legend_.height()}) {
      for (const double left : {axes.left + kInset, axes.right - kInset - legend_.width()}) {
        const std::size_t hidden =
            Hidden({left, top, left + legend_.width(), top + legend_.height()});
        if (hidden < fewest) legend_corner_ = {left, top};
        fewest = std::min(fewest, hidden);
      }
    }
    return fewest;
  }

  // Number of segments of lines and of edges of bands that touch a box.
  std::size_t Hidden(const PlotBox& box) const {
    std::size_t count = 0;
    for (const LinePlot::Series& series : plot_.series) {
      for (const auto* ys : {&series.ys, &series.low, &series.high}) {
        for (const Points& piece : PiecesOf(series, *ys)) {
          count += piece.size() == 1 && Touches(piece[0], piece[0], box);
          for (std::size_t i = 1; i < piece.size(); ++i) {
            count += Touches(piece[i - 1], piece[i], box);
          }
        }
      }
    }
    return count;
  }

  // Lines of one pixel are sharp where their middle is in the middle of a pixel.
  void DrawRule(PlotPoint from, PlotPoint to, Color color) {
    const auto sharp = [](PlotPoint p) {
      return PlotPoint{std::floor(p.x) + 0.5, std::floor(p.y) + 0.5};
    };
    const PlotPoint points[] = {sharp(from), sharp(to)};
    canvas_->DrawLine(points, {.color = color, .width = 1});
  }

  // Draws grid lines, tick marks and tick labels.
  void DrawGrid() {
    using L = PlotLayout;
    const PlotBox& axes = layout_.axes();
    for (const ValueAxis::Tick& tick : layout_.x().ticks()) {
      const double x = layout_.X(tick.value), below = axes.bottom + L::kTickLength;
      DrawRule({x, axes.top}, {x, axes.bottom}, kGrid);
      DrawRule({x, axes.bottom}, {x, below}, kFrame);
      canvas_->DrawText({x, below + L::kGap / 2 + L::kTickSize}, tick.text,
                        {.size = L::kTickSize, .anchor = PlotText::Anchor::kMiddle});
    }
    for (const ValueAxis::Tick& tick : layout_.y().ticks()) {
      const double y = layout_.Y(tick.value), before = axes.left - L::kTickLength;
      DrawRule({axes.left, y}, {axes.right, y}, kGrid);
      DrawRule({before, y}, {axes.left, y}, kFrame);
      // Digits are 0.73 of the size high.
      canvas_->DrawText({before - L::kGap / 2, y + 0.36 * L::kTickSize}, tick.text,
                        {.size = L::kTickSize, .anchor = PlotText::Anchor::kEnd});
    }
  }

  // Fills the area between the bounds: upper values forward, lower values backward.
  void DrawBands(std::size_t index) {
    const LinePlot::Series& series = plot_.series[index];
    const auto whole = [&](std::size_t i) {
      return IsDrawable(series.xs[i]) && IsDrawable(series.ys[i]) && IsDrawable(series.low[i]) &&
             IsDrawable(series.high[i]);
    };
    for (const auto& [first, end] : RunsOf(series.low.size(), whole)) {
      if (end == first + 1) continue;  // no width
      Points outline;
      for (std::size_t i = first; i < end; ++i) {
        outline.push_back({layout_.X(series.xs[i]), layout_.Y(series.high[i])});
      }
      for (std::size_t i = end; i-- > first;) {
        outline.push_back({layout_.X(series.xs[i]), layout_.Y(series.low[i])});
      }
      canvas_->FillPolygon(outline, ColorOf(series, index), kBandOpacity);
    }
  }

  // Draws a line through the points; an isolated point becomes a dot.
  void DrawSeries(std::size_t index) {
    const LinePlot::Series& series = plot_.series[index];
    for (const Points& piece : PiecesOf(series, series.ys)) {
      PlotPen pen = PenOf(series, index);
      if (piece.size() == 1) pen.width *= kDotPerWidth;
      canvas_->DrawLine(piece, pen);
    }
  }

  // Draws the left and the lower axis.
  void DrawFrame() {
    const PlotBox& axes = layout_.axes();
    DrawRule({axes.left, axes.top}, {axes.left, axes.bottom}, kFrame);
    DrawRule({axes.left, axes.bottom}, {axes.right, axes.bottom}, kFrame);
  }

  // Returns the size, or a smaller one with which the text fits.
  double FittingSize(std::string_view text, double size, double width) const {
    const double full = canvas_->TextWidth(text, size);
    return full > width ? size * width / full : size;
  }

  // Draws the title, the labels of the axes and the caption.
  void DrawLabels() {
    using L = PlotLayout;
    const auto middle = PlotText::Anchor::kMiddle;
    const PlotBox& axes = layout_.axes();
    const double x = (axes.left + axes.right) / 2, y = (axes.top + axes.bottom) / 2;
    // A title that is wider than the axes is in the middle of the whole plot.
    const bool wide = canvas_->TextWidth(plot_.title, L::kTitleSize) > axes.width();
    canvas_->DrawText(
        {wide ? plot_.width / 2.0 : x, axes.top - 2 * L::kGap}, plot_.title,
        {.size = FittingSize(plot_.title, L::kTitleSize, plot_.width - 2 * L::kMargin),
         .anchor = middle,
         .color = kText});
    canvas_->DrawText({x, layout_.caption_top() - L::kGap}, plot_.x_label,
                      {.size = FittingSize(plot_.x_label, L::kLabelSize, axes.width()),
                       .anchor = middle,
                       .color = kText});
    canvas_->DrawText({L::kMargin + L::kLabelSize * 0.8, y}, plot_.y_label,
                      {.size = FittingSize(plot_.y_label, L::kLabelSize, axes.height()),
                       .anchor = middle,
                       .color = kText,
                       .upward = true});
    // All lines of the caption have the size of the longest one.
    double size = L::kCaptionSize;
    for (const std::string& line : plot_.caption) {
      size = FittingSize(line, size, plot_.width - 2 * L::kMargin);
    }
    double row = layout_.caption_top() + L::kGap;
    for (const std::string& line : plot_.caption) {
      row += L::kCaptionRow;
      canvas_->DrawText({L::kMargin, row - 4}, line, {.size = size, .color = kText});
    }
  }

  const LinePlot& plot_;
  PlotCanvas* const canvas_;
  PlotLayout layout_;
  PlotLegend legend_;
  PlotPoint legend_corner_;
};

// Smaller plots leave no room for the texts.
void CheckSize(const LinePlot& plot) {
  TROOP_CHECK(plot.width >= 320 && plot.height >= 200, "a plot of {} x {} pixels is too small",
              plot.width, plot.height);
}

}  // namespace

bool HasPlots() { return true; }

Status CheckPlots() { return Status::Ok(); }

Result<Picture> RenderLinePlot(const LinePlot& plot) {
  CheckSize(plot);
  PlotCanvas canvas(PlotCanvas::Format::kPixels, plot.width, plot.height);
  Plotter(plot, &canvas).Draw();
  return canvas.TakePixels();
}

Result<Buffer> DrawLinePlot(const LinePlot& plot) {
  TROOP_ASSIGN_OR_RETURN(const Picture picture, RenderLinePlot(plot));
  return EncodePng(picture);
}

// Texts are text elements, so that they stay searchable.
Result<std::string> SvgLinePlot(const LinePlot& plot) {
  CheckSize(plot);
  PlotCanvas canvas(PlotCanvas::Format::kSvg, plot.width, plot.height);
  Plotter(plot, &canvas).Draw();
  return canvas.TakeSvg();
}

}  // namespace troop
