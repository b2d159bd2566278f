#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "learners/cost_reporting.h"
#include "learners/images/image_pipeline.h"
#include "learners/pipeline/pipeline_schedule.h"
#include "learners/pipeline/schedule_simulator.h"
#include "learners/pipeline/stage_runner.h"
#include "nn/parallel/shard_placement.h"

namespace troop {

// Measures the idle time and the memory of a stage, and predicts both from the measured times of
// all stages' passes (SimulateSchedule), for the report of a run. Transfers count as if they took
// no time. One owner thread.
class PipelineClock {
 public:
  // pipeline: must outlive this.
  explicit PipelineClock(const ImagePipeline* pipeline);
  // Sets the schedule that the following runs use, with the rows of its micro-batches. Errors:
  // those of Module::MakePlan.
  Status Plan(const PipelineSchedule& schedule, const std::vector<std::int64_t>& rows);
  // Takes the times of a run. operations: the stage's list.
  void Count(std::span<const StageOp> operations, const StageRunner& runner);
  // The last run: time from its start to its end, and in passes.
  double run_s() const { return run_s_; }
  double busy_s() const { return busy_s_; }

  // Numbers that this stage sends to all others: the time of the run, and the mean times of the
  // passes of its chunks, with zeros for the chunks of the others.
  std::vector<double> Times() const;
  struct Place {
    TensorParallelRank rank;
    std::size_t stride = 0;  // distance of the ranks' numbers
  };
  // Takes the numbers of all ranks, and adds measurement and prediction to the cost of every
  // kEvery-th run.
  void Exchanged(std::span<const double> all, const Place& place, UpdateCost* cost);

 private:
  static constexpr std::int64_t kEvery = 16;
  const ImagePipeline* const pipeline_;
  PipelineSchedule schedule_;
  PipelineCosts costs_;        // without the times
  std::vector<double> times_;  // [chunk][3]: forward, backward or of the input, of the weights
  double run_s_ = 0, busy_s_ = 0, held_bytes_ = 0;
  std::int64_t runs_ = 0;
};

}  // namespace troop
