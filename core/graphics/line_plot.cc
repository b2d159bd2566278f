// Implements line plots as pixels: axis layout, bands, lines, legend and caption.
#include "core/graphics/line_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/base/check.h"
#include "core/graphics/bitmap_font.h"
#include "core/graphics/png.h"
#include "core/graphics/raster.h"

namespace troop {
namespace {

constexpr Ink kWhite{255, 255, 255}, kText{40, 40, 40}, kFrame{120, 120, 120}, kGrid{226, 226, 226};
// Distinguishable with color blindness (Okabe & Ito 2008); the yellow is darker for a white
// background.
constexpr std::array<Ink, 8> kColors = {{{0, 114, 178},
                                         {213, 94, 0},
                                         {0, 158, 115},
                                         {204, 121, 167},
                                         {230, 159, 0},
                                         {86, 180, 233},
                                         {160, 140, 0},
                                         {0, 0, 0}}};
// clang-format on
constexpr double kLineThickness = 2.2, kFaintThickness = 1.2;
constexpr float kFaintStrength = 0.5f, kBandStrength = 0.2f;
constexpr int kScale = 2, kTitleScale = 3;
constexpr int kTextHeight = kGlyphHeight * kScale;
constexpr int kGap = 8;                        // pixels between texts and their objects
constexpr int kCaptionRow = kGlyphHeight + 5;  // height of a line of text in scale 1
constexpr double kPixelsPerXTick = 110, kPixelsPerYTick = 60;

// Range of values; empty until the first Add.
struct Span {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void Add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  // Returns the span with a margin; never empty.
  Span Widened(double share) const {
    if (low > high) return {0, 1};
    const double width = high > low ? high - low : std::max(std::abs(low), 1.0);
    const double room = high > low ? width * share : width / 2;
    return {low - room, high + room};
  }
};

// An axis: its span, and its ticks with labels.
struct Axis {
  Span span;
  std::vector<double> ticks;
  std::vector<std::string> texts;
  int widest = 0;  // pixels

  // Labels are formatted first, because their width determines the layout.
  Axis(Span values, double room, int count) : span(values.Widened(room)) {
    ticks = NiceTicks(span.low, span.high, count);
    const double step = ticks.size() > 1 ? ticks[1] - ticks[0] : span.high - span.low;
    const double largest = std::max(std::abs(span.low), std::abs(span.high));
    for (const double tick : ticks) {
      texts.push_back(TickText(tick, step, largest));
      widest = std::max(widest, Raster::TextWidth(texts.back(), kScale));
    }
  }
  double Share(double value) const { return (value - span.low) / (span.high - span.low); }
};

// The explicit color of a series, or the one of its index.
Ink ColorOf(const LinePlot::Series& series, std::size_t index) {
  return kColors[(series.color < 0 ? index : std::size_t(series.color)) % kColors.size()];
}

// True if a point can be drawn.
bool Finite(const LinePlot::Series& series, std::size_t i) {
  return IsDrawable(series.xs[i]) && IsDrawable(series.ys[i]);
}

// Computes the layout of a plot and draws its parts.
class Plotter {
 public:
  explicit Plotter(const LinePlot& plot)
      : plot_(plot),
        x_(Values(plot, {&LinePlot::Series::xs}), 0, int(plot.width / kPixelsPerXTick)),
        y_(Values(plot, {&LinePlot::Series::ys, &LinePlot::Series::low, &LinePlot::Series::high}),
           0.05, int(plot.height / kPixelsPerYTick)),
        raster_(plot.width, plot.height, kWhite) {
    // Margins for tick labels, axis labels, title and caption.
    left_ = 2 * kGap + y_.widest + (plot.y_label.empty() ? 0 : kTextHeight + kGap);
    top_ = 2 * kGap + (plot.title.empty() ? 0 : kGlyphHeight * kTitleScale + kGap);
    const int right_room = x_.texts.empty() ? 0 : Raster::TextWidth(x_.texts.back(), kScale) / 2;
    right_ = plot.width - 2 * kGap - right_room;
    caption_ = plot.caption.empty() ? 0 : kCaptionRow * int(plot.caption.size()) + kGap;
    bottom_ = plot.height - caption_ - 2 * kGap - kTextHeight -
              (plot.x_label.empty() ? 0 : kTextHeight + kGap);
    TROOP_CHECK(bottom_ > top_, "a caption of {} lines leaves no room for the plot",
                plot.caption.size());
  }

  // Order: bands below lines, and lines below axes, legend and caption.
  Picture Draw() && {
    DrawGrid();
    for (std::size_t i = 0; i < plot_.series.size(); ++i) DrawBand(i);
    for (std::size_t i = 0; i < plot_.series.size(); ++i) DrawSeries(i);
    DrawFrame();
    DrawLegend();
    DrawCaption();
    return std::move(raster_).Take();
  }

 private:
  using Member = std::vector<double> LinePlot::Series::*;
  // Returns the span of the given members over all drawable points.
  static Span Values(const LinePlot& plot, std::initializer_list<Member> all) {
    Span span;
    for (const LinePlot::Series& series : plot.series) {
      const std::size_t size = series.xs.size();
      TROOP_CHECK(size == series.ys.size(), "series \"{}\" has {} xs and {} ys", series.name, size,
                  series.ys.size());
      TROOP_CHECK(series.low.size() == series.high.size() &&
                      (series.low.empty() || series.low.size() == size),
                  "series \"{}\" has {} points and a band of {} and {}", series.name, size,
                  series.low.size(), series.high.size());
      for (const Member values : all) {
        for (std::size_t i = 0; i < (series.*values).size(); ++i) {
          const double value = (series.*values)[i];
          if (Finite(series, i) && IsDrawable(value)) span.Add(value);
        }
      }
    }
    return span;
  }
  // Pixel coordinates of values; y grows downwards.
  double X(double value) const { return left_ + x_.Share(value) * (right_ - left_); }
  double Y(double value) const { return bottom_ - y_.Share(value) * (bottom_ - top_); }

  // Draws grid lines and tick labels.
  void DrawGrid() {
    for (std::size_t i = 0; i < x_.ticks.size(); ++i) {
      const int x = int(std::lround(X(x_.ticks[i])));
      raster_.FillBox(x, top_, 1, bottom_ - top_ + 5, kGrid);
      raster_.Text(x - Raster::TextWidth(x_.texts[i], kScale) / 2, bottom_ + kGap, x_.texts[i],
                   kScale, kText);
    }
    for (std::size_t i = 0; i < y_.ticks.size(); ++i) {
      const int y = int(std::lround(Y(y_.ticks[i])));
      raster_.FillBox(left_ - 5, y, right_ - left_ + 5, 1, kGrid);
      raster_.Text(left_ - kGap - Raster::TextWidth(y_.texts[i], kScale), y - kTextHeight / 2 + 1,
                   y_.texts[i], kScale, kText);
    }
  }

  // Fills the band between adjacent points that are all finite.
  void DrawBand(std::size_t index) {
    const LinePlot::Series& series = plot_.series[index];
    if (series.low.empty()) return;
    Coverage coverage(plot_.width, plot_.height);
    const auto whole = [&](std::size_t i) {
      return Finite(series, i) && IsDrawable(series.low[i]) && IsDrawable(series.high[i]);
    };
    for (std::size_t i = 1; i < series.low.size(); ++i) {
      if (!whole(i - 1) || !whole(i)) continue;
      const double from = X(series.xs[i - 1]), to = X(series.xs[i]);
      // Linear interpolation at pixel column x.
      const auto at = [&](const std::vector<double>& values, double x) {
        const double t = to > from ? std::clamp((x - from) / (to - from), 0.0, 1.0) : 1;
        return Y(values[i - 1] + t * (values[i] - values[i - 1]));
      };
      for (int x = int(std::ceil(from)); x <= int(to); ++x) {
        coverage.FillColumn(x, at(series.high, x), at(series.low, x));
      }
    }
    raster_.Blend(coverage, ColorOf(series, index), kBandStrength);
  }

  // Draws a line through the points; an isolated point becomes a dot.
  void DrawSeries(std::size_t index) {
    const LinePlot::Series& series = plot_.series[index];
    const double thickness = series.faint ? kFaintThickness : kLineThickness;
    Coverage coverage(plot_.width, plot_.height);
    for (std::size_t i = 0; i < series.xs.size(); ++i) {
      if (!Finite(series, i)) continue;
      const double x = X(series.xs[i]), y = Y(series.ys[i]);
      // A point is joined to its predecessor if both can be drawn.
      const bool joined = i > 0 && Finite(series, i - 1);
      const bool alone = !joined && (i + 1 == series.xs.size() || !Finite(series, i + 1));
      if (joined) coverage.Stroke(X(series.xs[i - 1]), Y(series.ys[i - 1]), x, y, thickness);
      if (alone) coverage.Stroke(x, y, x, y, 3 * thickness);  // a dot
    }
    raster_.Blend(coverage, ColorOf(series, index), series.faint ? kFaintStrength : 1);
  }

  // Draws the axes, the title and the axis labels.
  void DrawFrame() {
    raster_.FillBox(left_, top_, 1, bottom_ - top_, kFrame);
    raster_.FillBox(left_, bottom_, right_ - left_ + 1, 1, kFrame);
    const auto centred = [](int low, int high, std::string_view text, int scale) {
      return (low + high - Raster::TextWidth(text, scale)) / 2;
    };
    raster_.Text(centred(left_, right_, plot_.title, kTitleScale), kGap + kGap / 2, plot_.title,
                 kTitleScale, kText);
    raster_.Text(centred(left_, right_, plot_.x_label, kScale),
                 plot_.height - caption_ - kGap - kTextHeight, plot_.x_label, kScale, kText);
    const int bottom = (top_ + bottom_ + Raster::TextWidth(plot_.y_label, kScale)) / 2;
    raster_.TextUpward(kGap, bottom, plot_.y_label, kScale, kText);
  }

  // Caption lines are in scale 1, below the axis label.
  void DrawCaption() {
    int top = plot_.height - caption_;
    for (const std::string& line : plot_.caption) {
      raster_.Text(2 * kGap, top, line, 1, kText);
      top += kCaptionRow;
    }
  }

  // Draws the legend in the corner with the fewest points. A single series needs none, because the
  // title describes it.
  void DrawLegend() {
    if (plot_.series.size() < 2) return;
    constexpr int kSample = 28, kRow = kTextHeight + 4;
    // Series without a name, such as single seeds, have no row.
    int widest = 0, rows = 0;
    for (const auto& series : plot_.series) {
      widest = std::max(widest, Raster::TextWidth(series.name, kScale));
      rows += !series.name.empty();
    }
    if (rows == 0) return;
    const int width = kSample + widest + 3 * kGap;
    const int height = kRow * rows + kGap;
    const auto [left, top] = EmptiestCorner(width, height);
    raster_.FillBox(left, top, width, height, kGrid);
    raster_.FillBox(left + 1, top + 1, width - 2, height - 2, kWhite);
    int row = top + kGap / 2;
    for (std::size_t i = 0; i < plot_.series.size(); ++i) {
      const LinePlot::Series& series = plot_.series[i];
      if (series.name.empty()) continue;
      raster_.FillBox(left + kGap, row + kRow / 2 - 2, kSample, 3, ColorOf(series, i));
      raster_.Text(left + 2 * kGap + kSample, row + 3, series.name, kScale, kText);
      row += kRow;
    }
  }

  // Returns the corner in which a box hides the fewest points.
  std::pair<int, int> EmptiestCorner(int width, int height) const {
    const int lefts[] = {left_ + kGap, right_ - kGap - width};
    const int tops[] = {top_ + kGap / 2, bottom_ - kGap - height};
    std::pair<int, int> best;
    std::size_t fewest = std::numeric_limits<std::size_t>::max();
    for (const int top : tops) {
      for (const int left : lefts) {
        const std::size_t hidden = PointsWithin(left, top, width, height);
        if (hidden < fewest) best = {left, top};
        fewest = std::min(fewest, hidden);
      }
    }
    return best;
  }

  // Number of points of all series in a box. NaN compares false, so such points do not count.
  std::size_t PointsWithin(int left, int top, int width, int height) const {
    std::size_t count = 0;
    for (const auto& series : plot_.series) {
      for (std::size_t i = 0; i < series.xs.size(); ++i) {
        const double x = X(series.xs[i]) - left, y = Y(series.ys[i]) - top;
        count += x >= 0 && x < width && y >= 0 && y < height;
      }
    }
    return count;
  }

  const LinePlot& plot_;
  const Axis x_, y_;
  Raster raster_;
  int left_ = 0, top_ = 0, right_ = 0, bottom_ = 0;  // area of the lines, in pixels
  int caption_ = 0;                                  // height of the caption
};

}  // namespace

// Ticks at multiples of 1, 2 or 5 times a power of ten.
std::vector<double> NiceTicks(double low, double high, int count) {
  TROOP_CHECK(std::isfinite(low) && std::isfinite(high) && low < high, "ticks within [{}, {}]", low,
              high);
  // Rounds the step up to 1, 2, 5 or 10 times a power of ten.
  const double rough = (high - low) / std::max(count, 1);
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double lead = rough / power;  // 1 to 10
  const double step = power * (lead <= 1.0 ? 1 : lead <= 2.0 ? 2 : lead <= 5.0 ? 5 : 10);
  std::vector<double> ticks;
  // Relative to the step: rounding must not drop a tick at either end.
  const double slack = step * 1e-9;
  for (double i = std::ceil((low - slack) / step); i * step <= high + slack; ++i) {
    ticks.push_back(i == 0 ? 0 : i * step);  // no -0
    if (ticks.size() > 1000) break;          // rounding: low + step == low
  }
  return ticks;
}

// All ticks of an axis share a unit and a number of decimals, so that they are easy to compare.
std::string TickText(double value, double step, double largest) {
  struct Unit {
    double size;
    std::string_view name;
  };
  // Thousands begin at 1e4, so that 1000 to 9999 are written in full.
  constexpr Unit kUnits[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e4, "k"}, {0, ""}};
  if (value == 0) return "0";
  // Scientific notation outside the range of the units.
  if (largest < 1e-4 || largest >= 1e16) return fmt::format("{:.3g}", value);
  const Unit& found =
      *std::ranges::find_if(kUnits, [&](const Unit& unit) { return largest >= unit.size; });
  const double unit = found.size == 1e4 ? 1e3 : found.size == 0 ? 1 : found.size;
  const double digits = std::ceil(-std::log10(step / unit) - 1e-9);
  return fmt::format("{:.{}f}{}", value / unit, int(std::clamp(digits, 0.0, 9.0)), found.name);
}

// Smaller plots leave no room for the texts.
Picture RenderLinePlot(const LinePlot& plot) {
  TROOP_CHECK(plot.width >= 320 && plot.height >= 200, "a plot of {} x {} pixels is too small",
              plot.width, plot.height);
  return Plotter(plot).Draw();
}

Buffer DrawLinePlot(const LinePlot& plot) { return EncodePng(RenderLinePlot(plot)); }

}  // namespace troop
