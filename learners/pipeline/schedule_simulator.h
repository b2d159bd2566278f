#pragma once

#include <cstdint>
#include <vector>

#include "core/base/status.h"
#include "learners/pipeline/pipeline_schedule.h"
#include "learners/pipeline/schedule_run.h"

namespace troop {

// Profiled cost of a chunk, for a micro-batch of share 1.
struct ChunkCost {
  double forward_s = 0;                                // also of kRecompute
  double backward_input_s = 0, backward_weight_s = 0;  // kBackward takes their sum
  double update_s = 0;
  double send_activation_s = 0, send_gradient_s = 0;  // transfer of its results to the neighbor
  double activation_bytes = 0;                        // complete activations that backward needs
  double input_bytes = 0;  // input, which is also the size of the previous chunk's message
  double output_bytes = 0;
  double weight_bytes = 0;  // one version
  double fixed_bytes = 0;   // gradient, optimizer, anything held all the time
};
struct PipelineCosts {
  std::vector<ChunkCost> chunks;          // [chunk]
  std::vector<double> micro_batch_share;  // [micro-batch]: relative size; empty: all 1
  std::vector<double> speed;  // [stage]: divides the times of passes and updates; empty: all 1
};

// Predicted use of a stage.
struct StageForecast {
  double busy_s = 0;  // passes and updates
  double bubble = 0;  // share of the schedule's time in which the stage is idle
  double peak_bytes = 0;
};
struct PipelineForecast {
  double seconds = 0;                              // until the last stage has ended
  double bubble = 0;                               // mean over stages
  std::vector<StageForecast> stages;               // [stage]
  std::vector<std::vector<OpInterval>> intervals;  // [stage][operation]
};

// Predicts a schedule by the times of its events: each operation begins when its stage is free and
// its message, slot or replicas are there. A channel transfers one message at a time. Memory has
// the fixed bytes, weight versions, activations, and messages in the slots of both sides: received
// ones until a pass reads them, sent ones until they are received, for which the largest send_slots
// messages of each of the stage's chunks are counted. O(operations).
// Errors: those of CheckSchedule; kInvalidArgument: costs of the wrong number, negative, or not
// finite; a speed or a share that is not positive.
Result<PipelineForecast> SimulateSchedule(const PipelineSchedule& schedule,
                                          const PipelineCosts& costs);

}  // namespace troop
