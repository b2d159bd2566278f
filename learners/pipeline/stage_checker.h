#pragma once

#include "core/base/status.h"
#include "learners/pipeline/pipeline_schedule.h"

namespace troop {

// The part of CheckSchedule that looks at each stage's list alone: fields in range, each pass and
// message exactly once and after its inputs, weight versions, updates. Cost and errors are those of
// CheckSchedule. REQUIRES: sizes, properties and placement are valid.
Status CheckStages(const PipelineSchedule& schedule);

}  // namespace troop
