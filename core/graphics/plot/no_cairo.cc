// Implements the plots of a build without Cairo: every function returns the same error.
#include "core/graphics/plot/line_plot.h"
#include "core/graphics/plot/matrix_plot.h"

namespace troop {

bool HasPlots() { return false; }

Status CheckPlots() {
  return FailedPrecondition(
      "this build has no plots (Cairo was not found, or TROOP_PLOTS is OFF); install libcairo2-dev "
      "and build again with -DTROOP_PLOTS=ON");
}

// Callers check first, so these are not reached by a command.
Result<Picture> RenderLinePlot(const LinePlot&) { return CheckPlots(); }
Result<Buffer> DrawLinePlot(const LinePlot&) { return CheckPlots(); }
Result<std::string> SvgLinePlot(const LinePlot&) { return CheckPlots(); }
Result<Buffer> DrawMatrixPlot(const MatrixPlot&) { return CheckPlots(); }
Result<std::string> SvgMatrixPlot(const MatrixPlot&) { return CheckPlots(); }

}  // namespace troop
