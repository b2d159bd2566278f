// Implements PlotLegend: size, and drawing of its entries.
#include "core/graphics/plot/cairo/plot_legend.h"

#include <algorithm>
#include <utility>

#include "core/base/utf8.h"

namespace troop {
namespace {

constexpr double kRowPerSize = 1.5;  // distance of lines of text, per size of the text
constexpr double kSizeMin = 7;       // smaller text is not readable
constexpr Color kBorder{204, 204, 204}, kBackground{255, 255, 255};

// Cuts a text to a width, between characters, and marks the cut.
std::string CutToWidth(const std::string& text, double size, double width, PlotCanvas* canvas) {
  if (canvas->TextWidth(text, size) <= width) return text;
  std::string kept;
  // Characters are added one by one: a name is short, and widths depend on neighbors.
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length =
        std::max<std::size_t>(1, Utf8Length(std::string_view(text).substr(at)));
    const std::string longer = kept + text.substr(at, length);
    if (canvas->TextWidth(longer + "...", size) > width) break;
    kept = longer;
    at += length;
  }
  return kept + "...";
}

}  // namespace

PlotLegend::PlotLegend(std::vector<Entry> entries, double width_max, double height_max,
                       PlotCanvas* canvas)
    : entries_(std::move(entries)), canvas_(canvas) {
  // Rows shrink with their number until the text reaches its smallest size.
  const double rows = double(std::max<std::size_t>(1, entries_.size()));
  row_ = std::min(size_ * kRowPerSize, (height_max - 2 * kPadding) / rows);
  size_ = std::clamp(row_ / kRowPerSize, kSizeMin, size_);
  // Paddings: before the sample, between sample and name, and after the name.
  const double room = width_max - kSample - 3 * kPadding;
  double widest = 0;
  for (Entry& entry : entries_) {
    entry.name = CutToWidth(entry.name, size_, room, canvas);
    widest = std::max(widest, canvas->TextWidth(entry.name, size_));
  }
  width_ = kSample + widest + 3 * kPadding;
}

// The frame is nearly opaque, so that a grid line does not cross the names.
void PlotLegend::Draw(PlotPoint corner) const {
  const double right = corner.x + width_, bottom = corner.y + height();
  canvas_->FillBox({corner.x, corner.y, right, bottom}, kBackground, 0.9);
  const PlotPoint border[] = {
      corner, {right, corner.y}, {right, bottom}, {corner.x, bottom}, corner};
  canvas_->DrawLine(border, {.color = kBorder, .width = 1});
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    const double middle = corner.y + kPadding + row_ * (double(i) + 0.5);
    const double left = corner.x + kPadding;
    // A band has the height of a lower-case letter, a line only its own width.
    if (entry.band) {
      canvas_->FillBox({left, middle - size_ / 3, left + kSample, middle + size_ / 3},
                       entry.pen.color, entry.pen.opacity);
    } else {
      const PlotPoint sample[] = {{left + 1, middle}, {left + kSample - 1, middle}};
      canvas_->DrawLine(sample, entry.pen);
    }
    // The middle of lower-case letters is a third of the size above the baseline.
    canvas_->DrawText({left + kSample + kPadding, middle + 0.35 * size_}, entry.name,
                      {.size = size_});
  }
}

}  // namespace troop
