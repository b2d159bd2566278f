#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "collective/collective.h"
#include "core/base/status.h"
#include "core/base/time.h"
#include "learners/pipeline/pipeline_schedule.h"
#include "learners/pipeline/schedule_run.h"
#include "nn/module.h"

namespace troop {

// One stage of a pipeline: its part of the model, and its connections. All pointers are borrowed
// and must outlive the runner.
struct PipelineStage {
  const PipelineSchedule* schedule = nullptr;
  std::int64_t stage = 0;
  // [chunk] module with one input and one output, both f32 [rows, ...]; nullptr: on another stage.
  std::vector<const Module*> modules;
  std::vector<Shape> input_shape;  // [chunk] without the rows; used for chunks of this stage
  std::vector<std::int64_t> rows;  // [micro-batch], from MicroBatchRows
  // [chunk] weights and gradient, both [P], that the caller owns: it clears the gradient before
  // Run, and steps after it, so that kUpdate does nothing. Synchronous schedules only; used for
  // chunks of this stage. Empty: the runner owns them.
  struct Borrowed {
    std::span<const float> value;
    std::span<float> gradient;
  };
  std::vector<Borrowed> borrowed;
  // Groups of all stages, whose ranks are the stages: one for each direction, so that messages of
  // the two payloads keep their order. Not used by a schedule of one stage.
  Collective* activations = nullptr;
  Collective* gradients = nullptr;
  // Group of the stages with the same chunks, in the order of the placement; only if there are
  // several. Their gradients are added up before each update.
  Collective* replicas = nullptr;
  const Clock* clock = nullptr;  // of intervals()
};

// Parts of training that the schedule does not decide. Called on the thread of Run.
struct StageCallbacks {
  // Input of a micro-batch; needed by the stage of chunk 0. f32 [rows, ...], valid until Run
  // returns.
  std::function<ConstTensor(std::int64_t micro_batch)> input;
  // Writes the gradient of the loss with respect to the last chunk's output, of the same shape.
  std::function<void(std::int64_t micro_batch, ConstTensor output, Tensor gradient)> loss;
  // Adds to the context of a pass what the schedule does not have, such as dropout keys and the
  // place of the statistics. Optional.
  std::function<void(const StageOp& op, StepContext* context)> prepare;
  // Called after each kForward, but not after a kRecompute. Optional.
  std::function<void(const StageOp& op)> forwarded;
  // Optimizer step of a chunk: `value` [P] from `gradient` [P], the sum over micro-batches. Not
  // needed for borrowed weights.
  std::function<void(std::int64_t chunk, std::span<const float> gradient, std::span<float> value)>
      update;
  // Schedules with predicted weights: advances `value` [P] by `updates` predicted updates.
  std::function<void(std::int64_t chunk, std::int64_t updates, std::span<float> value)> predict;
};

// Executes the list of a stage. Results are sent while the next passes are computed; at most
// send_slots messages of a channel are open. The gradients of a chunk are added up in the order of
// the list. So each synchronous schedule that has its passes in index order gives the bytes of one
// device that accumulates the same micro-batches. Owner: one thread per stage.
class StageRunner {
 public:
  // Checks the schedule and plans the modules. Errors: those of CheckSchedule and of
  // Module::MakePlan; kInvalidArgument: a recurrent schedule, whose states modules do not
  // exchange; a missing module, callback or group; rows below 1.
  static Result<std::unique_ptr<StageRunner>> Make(const PipelineStage& stage,
                                                   StageCallbacks callbacks);
  ~StageRunner();

  // Newest weights of a chunk of this stage: [P]. Zero at first: the caller fills them before Run.
  // REQUIRES: they are not borrowed.
  std::span<float> value(std::int64_t chunk);
  // Runs the list once. Blocks. Errors: those of the groups; the runner is then unusable.
  Status Run();
  // Measured times of the last Run: [operation], from its start.
  const std::vector<OpInterval>& intervals() const;
  // Largest number of bytes that the micro-batches of the last Run held after an operation: inputs,
  // activations, and messages that were not sent or read yet.
  std::size_t held_bytes_max() const;
  // Outputs of the last chunk in a forward_only schedule: [micro-batch]; else empty.
  std::span<const Tensor> outputs() const;

 private:
  class Work;
  explicit StageRunner(std::unique_ptr<Work> work);
  const std::unique_ptr<Work> work_;
};

}  // namespace troop
