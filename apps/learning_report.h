#pragma once

#include <string>

#include "apps/coordinator.h"
#include "apps/plan.h"
#include "core/config.h"

namespace troop {

// What learners could reach.
struct Peak {
  double flops = 0;   // a second
  std::string where;  // "a thread here"
};

// Where the time of a supervised run went, and what moved between its learners: a table for people
// (and report.md of the run's folder). plan: what stands beside as planned; null: nothing. Empty
// where no update was made.
std::string LearningReport(const Config& config, const RunView& view, const Peak& peak,
                           const MeshPlan* plan);

// A plan costs some updates: whether the run made so many that they do not matter.
bool IsWorthAPlan(const Config& config, const RunView& view);

// The best of a few products: of 512 x 512 on one thread, or of 8,192 x 8,192 on the GPU where the
// config's learners compute. Takes some 0.1 s.
Peak MeasurePeak(const Config& config);

}  // namespace troop
