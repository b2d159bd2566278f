#pragma once

#include <cstdint>

namespace troop {

// Cost of averaging one gradient across learners: the fields allreduce_wait_s, allreduce_s,
// gradient_bytes, weights_s and weights_bytes of UpdateCost.
struct AllReduceStats {
  double wait_s = 0, allreduce_s = 0, bytes = 0;
  double weights_s = 0, weights_bytes = 0;
};

// Accumulated cost of one learner's updates, for the report at the end of a run. All fields are
// sums.
struct UpdateCost {
  double gradients = 0;  // gradients computed
  double data_s = 0;     // choosing and packing the batch
  double compute_s = 0;  // forward, loss, backward, and the communication overlapped with them
  double tensor_s = 0;   // waiting for the other tensor-parallel ranks
  double allreduce_wait_s = 0;  // waiting for the gradient all-reduce after the backward pass
  double allreduce_s = 0;       // all-reduce, from the first bucket sent to the last received
  double step_s = 0;            // clip and optimizer
  double flops = 0;             // of this learner's matrix products; 2 per multiply-add
  double gradient_bytes = 0;    // gradients all-reduced, or pushed to shards
  double weights_s = 0;         // from requesting weights from parameter shards to receiving them
  double weights_bytes = 0;     // received in weights_s
  double tensor_bytes = 0;      // exchanged with the other tensor-parallel ranks
  double tokens = 0, sequences = 0;  // inputs; with tensor parallelism rank 0 counts
  // Runs of a pipeline that were measured: the time of all stages, the idle time of this one, the
  // memory of its micro-batches; and the same as the schedule's simulation predicts it.
  std::int64_t stage = -1;  // place in the pipeline; negative: none
  double stage_runs = 0, stage_s = 0, stage_idle_s = 0, stage_bytes = 0;
  double planned_stage_s = 0, planned_idle_s = 0, planned_stage_bytes = 0;
  UpdateCost& operator+=(const UpdateCost& other);
  void Count(const AllReduceStats& stats);
};

// Accounting of what updates cost: an optional interface of an Algorithm
// (Algorithm::cost_reporting). Owner thread: the algorithm's.
class CostReporting {
 public:
  virtual ~CostReporting() = default;
  // The cost of updates since the last call.
  virtual UpdateCost TakeCost() = 0;
  // Adds the cost of an all-reduce outside ComputeGradient.
  virtual void CountAllReduce(const AllReduceStats& stats) = 0;
};

}  // namespace troop
