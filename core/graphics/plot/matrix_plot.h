#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/buffer.h"
#include "core/base/status.h"

namespace troop {

// A square matrix of counts, such as a confusion matrix: a cell is as dark as its share of the
// row's sum, and has its count as text where it fits. Texts are UTF-8.
struct MatrixPlot {
  std::string title, row_label, column_label;
  std::vector<std::string> names;                 // of rows and columns
  std::vector<std::vector<std::int64_t>> counts;  // [N, N], 0 or more
};
inline constexpr std::size_t kMatrixPlotRowsMax = 200;

// Render the plot, whose size follows from the number of rows. Errors: kInvalidArgument: more than
// kMatrixPlotRowsMax rows; those of CheckPlots (core/graphics/plot/line_plot.h); kInternal: Cairo
// failed (memory). REQUIRES: sizes as above, at least one row.
Result<Buffer> DrawMatrixPlot(const MatrixPlot& plot);
Result<std::string> SvgMatrixPlot(const MatrixPlot& plot);

}  // namespace troop
