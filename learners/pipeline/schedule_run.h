#pragma once

#include <functional>
#include <vector>

#include "core/base/status.h"
#include "learners/pipeline/pipeline_schedule.h"

namespace troop {

// Begin and end of an operation, in seconds from the start of the schedule. A receive or a blocked
// send lasts from the time at which the stage reached it.
struct OpInterval {
  double start_s = 0, end_s = 0;
  bool operator==(const OpInterval&) const = default;
};
// Duration of an operation on a stage: of a pass or an update on its processor; of a send on the
// link, where the messages of a channel follow each other while the stage continues. Not called for
// receives. Must be finite and >= 0.
using OpSeconds = std::function<double(std::int64_t stage, const StageOp& op)>;

// Executes the stages as sequential processes that block on full or empty channels, and on the
// updates of their replicas. Such a network has one result in every order of execution (Kahn 1974),
// so one run decides whether the schedule can deadlock. Returns [stage][operation]. O(operations).
// REQUIRES: stages, peers and placement are valid. Errors: kInvalidArgument: a deadlock; the
// message names the stages that wait for each other.
Result<std::vector<std::vector<OpInterval>>> RunSchedule(const PipelineSchedule& schedule,
                                                         const OpSeconds& seconds);

}  // namespace troop
