#pragma once

#include "core/base/status.h"
#include "learners/pipeline/pipeline_schedule.h"

namespace troop {

// Proves a schedule valid:
//  1. Complete: each micro-batch passes each chunk forward and backward exactly once, on the stage
//  of its placement; each message is sent and received exactly once, and both sides of a channel
//  have the same order; each gradient is part of the right update. A synchronous schedule has one
//  update per stage, after all micro-batches. In an asynchronous one, update v of n replicas has
//  micro-batches (v-1)*n to v*n-1, one of each replica.
//  2. In order: an operation follows, on its stage, those whose results it reads. Passes read the
//  weight versions that the policy permits.
//  3. Free of deadlock with the declared number of send slots.
//  4. Within its memory: no stage exceeds memory_max at any operation.
// Accepts any bytes in the fields. O(operations), in time and in memory.
// Errors: kInvalidArgument: the first violation; the message names the stage, the index of the
// operation in its list, and the reason.
Status CheckSchedule(const PipelineSchedule& schedule);

}  // namespace troop
