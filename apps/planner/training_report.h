#pragma once

#include <string>

#include "apps/planner/mesh_planner.h"
#include "fleet/config/config.h"
#include "fleet/run/run_state.h"

namespace troop {

// The highest measured rate of matrix products.
struct Peak {
  double flops = 0;   // per second
  std::string where;  // "one thread", or the name of the GPU
};

// The time and traffic of a supervised run's learners, as Markdown tables (report.md in the run
// folder). plan: shown next to the measured times; null: no such column. Empty if no update was
// made.
std::string LearningReport(const Config& config, const RunView& view, const Peak& peak,
                           const MeshPlan* plan);

// The idle time and the memory of the stages of a run's pipelines, measured and predicted, as a
// Markdown table. Empty without pipelines, or if no update was measured.
std::string PipelineReport(const Config& config, const RunView& view);

// True if the run made enough updates that those for measuring a plan do not matter.
bool IsWorthAPlan(const Config& config, const RunView& view);

// Measures the best of a few matrix products: 512 x 512 on one thread, or 8,192 x 8,192 on the GPU
// if the config's learners use one. Blocks for about 0.1 s.
Peak MeasurePeak(const Config& config);

}  // namespace troop
