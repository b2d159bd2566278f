// Implements SvgLinePlot, with the same axes, colors and legend as core/graphics/line_plot.cc draws
// in pixels.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/graphics/line_plot.h"

namespace troop {
namespace {

// The colors of core/graphics/line_plot.cc.
constexpr std::array<const char*, 8> kSvgColors = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                   "#e69f00", "#56b4e9", "#a08c00", "#000000"};
// Margins and row heights in pixels.
constexpr int kLeft = 80, kRight = 24, kTop = 48, kBelow = 64, kCaptionLine = 16, kLegendLine = 20;

// The range of the values on one axis.
struct SvgRange {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  // Values that cannot be drawn do not affect the range.
  void Add(double value) {
    if (!IsDrawable(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  // Adds a margin; a single value gets a range of its size, no value the range [0, 1].
  void Widen(double share) {
    if (low > high) low = 0, high = 1;
    if (low == high) low -= 0.5 * std::max(std::abs(low), 1.0), high += high - low;
    const double room = share * (high - low);
    low -= room;
    high += room;
  }
  double Share(double value) const { return (value - low) / (high - low); }
};

// Escapes text for XML; control characters become spaces.
std::string XmlText(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '>':
        out += "&gt;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

// Computes the layout of a plot and writes its elements.
class SvgPlot {
 public:
  explicit SvgPlot(const LinePlot& plot) : plot_(plot) {
    bottom_ = plot.height - kBelow - kCaptionLine * int(plot.caption.size());
    for (const LinePlot::Series& s : plot.series) {
      for (std::size_t i = 0; i < s.xs.size(); ++i) {
        if (!IsDrawable(s.ys[i])) continue;
        x_.Add(s.xs[i]);
        y_.Add(s.ys[i]);
        if (!s.low.empty()) y_.Add(s.low[i]), y_.Add(s.high[i]);
      }
    }
    x_.Widen(0);
    y_.Widen(0.05);
  }

  // Elements are drawn in the order of the file, so ticks come first.
  std::string Draw() {
    out_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} "
        "{1}\" font-family=\"sans-serif\" font-size=\"14\" fill=\"#282828\">\n"
        "<rect width=\"{0}\" height=\"{1}\" fill=\"#fff\"/>\n",
        plot_.width, plot_.height);
    DrawTicks();
    for (std::size_t i = 0; i < plot_.series.size(); ++i) DrawSvgSeries(i);
    DrawTexts();
    return out_ + "</svg>\n";
  }

 private:
  double X(double value) const { return kLeft + x_.Share(value) * (plot_.width - kLeft - kRight); }
  double Y(double value) const { return bottom_ - y_.Share(value) * (bottom_ - kTop); }
  // Negative colors mean that the index of the series decides.
  const char* ColorOf(std::size_t index) const {
    const int color = plot_.series[index].color;
    return kSvgColors[(color < 0 ? index : std::size_t(color)) % kSvgColors.size()];
  }
  // Paths instead of line elements, like the series.
  void Line(double x0, double y0, double x1, double y1, const char* color) {
    out_ += fmt::format("<path d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\" stroke=\"{}\"/>\n", x0, y0, x1,
                        y1, color);
  }
  // Coordinates have one decimal, which keeps files small and is finer than a pixel.
  void Text(double x, double y, std::string_view text, std::string_view more) {
    if (text.empty()) return;
    out_ +=
        fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, more, XmlText(text));
  }

  // Draws grid lines, tick labels and axes.
  void DrawTicks() {
    const auto draw = [](const SvgRange& range, int count, const auto& tick) {
      const std::vector<double> ticks = NiceTicks(range.low, range.high, count);
      const double step = ticks.size() > 1 ? ticks[1] - ticks[0] : range.high - range.low;
      const double largest = std::max(std::abs(range.low), std::abs(range.high));
      for (const double value : ticks) tick(value, TickText(value, step, largest));
    };
    draw(x_, plot_.width / 110, [this](double value, const std::string& text) {
      Line(X(value), kTop, X(value), bottom_ + 5, "#e2e2e2");
      Text(X(value), bottom_ + 20, text, "text-anchor=\"middle\"");
    });
    draw(y_, plot_.height / 60, [this](double value, const std::string& text) {
      Line(kLeft - 5, Y(value), plot_.width - kRight, Y(value), "#e2e2e2");
      Text(kLeft - 8, Y(value) + 5, text, "text-anchor=\"end\"");
    });
    Line(kLeft, kTop, kLeft, bottom_, "#787878");
    Line(kLeft, bottom_, plot_.width - kRight, bottom_, "#787878");
  }

  // Splits a series at points that can't be drawn.
  void DrawSvgSeries(std::size_t index) {
    const LinePlot::Series& s = plot_.series[index];
    const auto finite = [&s](std::size_t i) {
      const bool band = s.low.empty() || (IsDrawable(s.low[i]) && IsDrawable(s.high[i]));
      return band && IsDrawable(s.xs[i]) && IsDrawable(s.ys[i]);
    };
    for (std::size_t from = 0; from < s.xs.size();) {
      std::size_t to = from;
      while (to < s.xs.size() && finite(to)) ++to;
      if (to > from) DrawPiece(index, from, to);
      from = to + 1;
    }
  }

  // Draws the points [from, to), which are all finite. A single point becomes a dot, because lines
  // have round ends.
  void DrawPiece(std::size_t index, std::size_t from, std::size_t to) {
    const LinePlot::Series& s = plot_.series[index];
    std::string line = "M";
    const auto point = [&](std::size_t i, double y) {
      return fmt::format("{:.1f} {:.1f} ", X(s.xs[i]), Y(y));
    };
    for (std::size_t i = from; i < to; ++i) line += point(i, s.ys[i]);
    // A path of length 0 is drawn as a dot.
    if (to == from + 1) line += point(from, s.ys[from]);
    if (!s.low.empty()) {
      // The outline of the band: upper values forward, lower values backward.
      std::string band = "M";
      for (std::size_t i = from; i < to; ++i) band += point(i, s.high[i]);
      for (std::size_t i = to; i-- > from;) band += point(i, s.low[i]);
      out_ +=
          fmt::format("<path d=\"{}z\" fill=\"{}\" fill-opacity=\"0.2\"/>\n", band, ColorOf(index));
    }
    out_ += fmt::format(
        "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" stroke-opacity=\"{}\" "
        "stroke-linecap=\"round\" stroke-linejoin=\"round\"/>\n",
        line, ColorOf(index), s.faint ? 1.2 : 2.2, s.faint ? 0.5 : 1);
  }

  // Draws title, axis labels, caption, and a legend of colored names.
  void DrawTexts() {
    const double middle = (kLeft + plot_.width - kRight) / 2.0, height = (kTop + bottom_) / 2.0;
    Text(middle, 30, plot_.title, "text-anchor=\"middle\" font-size=\"20\"");
    Text(middle, bottom_ + 44, plot_.x_label, "text-anchor=\"middle\"");
    Text(20, height, plot_.y_label,
         fmt::format("text-anchor=\"middle\" transform=\"rotate(-90 20 {:.1f})\"", height));
    double y = bottom_ + kBelow;
    for (const std::string& line : plot_.caption) {
      Text(16, y, line, "font-size=\"11\"");
      y += kCaptionLine;
    }
    if (plot_.series.size() < 2) return;  // the title describes a single series
    double row = kTop + kLegendLine;
    for (std::size_t i = 0; i < plot_.series.size(); ++i) {
      if (plot_.series[i].name.empty()) continue;
      Text(kLeft + 12, row, plot_.series[i].name, fmt::format("fill=\"{}\"", ColorOf(i)));
      row += kLegendLine;
    }
  }

  const LinePlot& plot_;
  SvgRange x_, y_;
  int bottom_ = 0;  // lower edge of the area of the lines
  std::string out_;
};

}  // namespace

// Texts are text elements, so that they stay searchable.
std::string SvgLinePlot(const LinePlot& plot) { return SvgPlot(plot).Draw(); }

}  // namespace troop
