// Implements plot/line_plot.h in a build without Cairo: every function returns the same error.
#include "core/graphics/plot/line_plot.h"

namespace troop {

bool HasPlots() { return false; }

Status CheckPlots() {
  return FailedPrecondition(
      "this build has no plots (Cairo was not found, or TROOP_PLOTS is OFF); install libcairo2-dev "
      "and build again with -DTROOP_PLOTS=ON");
}

Result<Picture> RenderLinePlot(const LinePlot&) { return CheckPlots(); }
Result<Buffer> DrawLinePlot(const LinePlot&) { return CheckPlots(); }
Result<std::string> SvgLinePlot(const LinePlot&) { return CheckPlots(); }

}  // namespace troop
