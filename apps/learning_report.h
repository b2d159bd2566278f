#pragma once

#include <string>

#include "apps/coordinator.h"
#include "apps/plan.h"
#include "core/config.h"

namespace troop {

// Where the time of a supervised run went, and what moved between its learners: a table for people
// (and report.md of the run's folder). peak_flops: of one thread of this machine (MeasurePeak).
// plan: what stands beside as planned; null: nothing. Empty where no update was made.
std::string LearningReport(const Config& config, const RunView& view, double peak_flops,
                           const MeshPlan* plan);

// A plan costs some updates: whether the run made so many that they do not matter.
bool IsWorthAPlan(const Config& config, const RunView& view);

// FLOP/s of one thread's products of 512 x 512, the best of a few: what learners could reach. Takes
// some 0.1 s.
double MeasurePeak(const Config& config);

}  // namespace troop
