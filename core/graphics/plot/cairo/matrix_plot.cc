// Implements plot/matrix_plot.h with Cairo.
#include "core/graphics/plot/matrix_plot.h"

#include <algorithm>
#include <numeric>

#include "core/base/check.h"
#include "core/graphics/plot/cairo/plot_canvas.h"
#include "core/graphics/png.h"

namespace troop {
namespace {

constexpr Color kText{38, 38, 38}, kLight{255, 255, 255}, kDark{0, 76, 130};
constexpr double kMargin = 16, kTitleSize = 18, kLabelSize = 14, kNameSize = 12;
constexpr double kNamesMax = 180;     // pixels of the longest name; longer ones are cut
constexpr double kCell = 64;          // side of a cell of a small matrix
constexpr double kMatrixMax = 1200;   // side of a large one
constexpr double kCountRowsMax = 30;  // matrices with counts in their cells

// Sizes that follow from the names and the number of rows.
struct Layout {
  double names = 0;  // width of the longest name
  double cell = 0;
  PlotBox matrix;
  int width = 0, height = 0;
};

// The names of columns are upright below the matrix, so both sides need the same room.
Layout LayoutOf(const MatrixPlot& plot) {
  PlotCanvas ruler(PlotCanvas::Format::kPixels, 1, 1);
  Layout layout;
  for (const std::string& name : plot.names)
    layout.names = std::max(layout.names, ruler.TextWidth(name, kNameSize));
  layout.names = std::min(layout.names, kNamesMax);
  // A small matrix has room for its labels, a large one fits on a screen.
  const double rows = double(plot.counts.size());
  layout.cell = std::min(kCell, kMatrixMax / rows);
  const double side = std::max(layout.cell * rows, 160.0);
  layout.cell = side / rows;
  const double before = 2 * kMargin + kLabelSize + layout.names;
  const double top = 2 * kMargin + kTitleSize;
  layout.matrix = {before, top, before + side, top + side};
  layout.width = int(layout.matrix.right + 2 * kMargin);
  layout.height = int(layout.matrix.bottom + before);
  return layout;
}

// A color between white and the darkest one.
Color Shade(double share) {
  const auto mix = [&](std::uint8_t light, std::uint8_t dark) {
    return std::uint8_t(double(light) + share * (double(dark) - double(light)) + 0.5);
  };
  return {mix(kLight.red, kDark.red), mix(kLight.green, kDark.green), mix(kLight.blue, kDark.blue)};
}

// Cells first, then texts, which are above them.
void Draw(const MatrixPlot& plot, const Layout& layout, PlotCanvas* canvas) {
  const PlotBox& box = layout.matrix;
  const std::size_t rows = plot.counts.size();
  const double x = (box.left + box.right) / 2, y = (box.top + box.bottom) / 2;
  canvas->DrawText({x, box.top - kMargin}, plot.title,
                   {.size = kTitleSize, .anchor = PlotText::Anchor::kMiddle, .color = kText});
  canvas->DrawText({x, double(layout.height) - kMargin}, plot.column_label,
                   {.size = kLabelSize, .anchor = PlotText::Anchor::kMiddle, .color = kText});
  canvas->DrawText(
      {kMargin + kLabelSize, y}, plot.row_label,
      {.size = kLabelSize, .anchor = PlotText::Anchor::kMiddle, .color = kText, .upward = true});
  // An empty row is white, as if it had no counts.
  for (std::size_t i = 0; i < rows; ++i) {
    const std::vector<std::int64_t>& row = plot.counts[i];
    const std::int64_t sum = std::reduce(row.begin(), row.end());
    for (std::size_t j = 0; j < rows; ++j) {
      const double left = box.left + double(j) * layout.cell;
      const double top = box.top + double(i) * layout.cell;
      const double share = sum > 0 ? double(row[j]) / double(sum) : 0;
      canvas->FillBox({left, top, left + layout.cell, top + layout.cell}, Shade(share));
      if (rows > kCountRowsMax) continue;
      // Dark cells have light texts.
      const std::string count = std::to_string(row[j]);
      const double size =
          std::min(kNameSize, layout.cell * 0.8 / std::max(1.0, 0.6 * double(count.size())));
      canvas->DrawText({left + layout.cell / 2, top + layout.cell / 2 + 0.36 * size}, count,
                       {.size = size,
                        .anchor = PlotText::Anchor::kMiddle,
                        .color = share > 0.5 ? kLight : kText});
    }
    // Names of a row and of a column; those of large matrices shrink with their cells.
    const double size = std::min(kNameSize, 0.9 * layout.cell);
    const double middle = (double(i) + 0.5) * layout.cell + 0.36 * size;
    canvas->DrawText({box.left - 6, box.top + middle}, plot.names[i],
                     {.size = size, .anchor = PlotText::Anchor::kEnd, .color = kText});
    canvas->DrawText(
        {box.left + middle, box.bottom + 6}, plot.names[i],
        {.size = size, .anchor = PlotText::Anchor::kEnd, .color = kText, .upward = true});
  }
}

// Larger matrices have cells of a few pixels, too small to read.
Status CheckMatrix(const MatrixPlot& plot) {
  TROOP_CHECK(!plot.counts.empty() && plot.names.size() == plot.counts.size(),
              "{} names for {} rows", plot.names.size(), plot.counts.size());
  if (plot.counts.size() <= kMatrixPlotRowsMax) return Status::Ok();
  return InvalidArgument("{} rows, must be at most {} for a picture; use --json",
                         plot.counts.size(), kMatrixPlotRowsMax);
}

}  // namespace

Result<Buffer> DrawMatrixPlot(const MatrixPlot& plot) {
  TROOP_RETURN_IF_ERROR(CheckMatrix(plot));
  const Layout layout = LayoutOf(plot);
  PlotCanvas canvas(PlotCanvas::Format::kPixels, layout.width, layout.height);
  Draw(plot, layout, &canvas);
  TROOP_ASSIGN_OR_RETURN(const Picture picture, canvas.TakePixels());
  return EncodePng(picture);
}

Result<std::string> SvgMatrixPlot(const MatrixPlot& plot) {
  TROOP_RETURN_IF_ERROR(CheckMatrix(plot));
  const Layout layout = LayoutOf(plot);
  PlotCanvas canvas(PlotCanvas::Format::kSvg, layout.width, layout.height);
  Draw(plot, layout, &canvas);
  return canvas.TakeSvg();
}

}  // namespace troop
