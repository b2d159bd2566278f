#pragma once

#include <memory>
#include <span>

#include "core/config/config.h"
#include "core/tensor/spec.h"
#include "nn/io/safetensors.h"
#include "nn/module.h"
#include "nn/optimizer.h"
#include "nn/parallel/tensor_parallel.h"
#include "replay/codec/sample_batch.h"

namespace troop {

// Statistics of one update's batch. Reports of several learners are combined as the mean weighted
// by rows.
struct LossReport {
  double loss = 0;           // importance-weighted mean over the batch
  double td_error_mean = 0;  // mean |TD error|
  double q_mean = 0;         // mean q of the chosen actions
  double gradient_norm = 0;  // before the clip
  double rows = 0;           // items (or labels) that the means are taken over
  // Supervised algorithms only.
  double accuracy = 0;         // share of labels classified correctly
  std::int64_t sequences = 0;  // in this learner's part of the batch
};

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
  UpdateCost& operator+=(const UpdateCost& other);
  void Count(const AllReduceStats& stats);
};

// A learning algorithm: loss, gradient, priorities and optimizer step. DQN and DPG differ only
// here. One owner thread at a time (the learner hands it to one job at a time). Deterministic.
class Algorithm {
 public:
  virtual ~Algorithm() = default;
  // First half of an update: computes the gradient of the batch's mean loss at value(). priority:
  // [B], |TD error| of each item, before the exponent α. `watch` is notified during backward of the
  // parts that are complete; nullptr: no notification.
  // Errors: kDataLoss: loss or gradient is not finite; the message names the batch item or the
  // parameter it comes from. kInvalidArgument: the batch does not fit. No gradient is computed
  // then.
  virtual Result<LossReport> ComputeGradient(const SampleBatch& batch, std::span<float> priority,
                                             GradientWatch* watch = nullptr) = 0;
  // [P], the result of the last ComputeGradient. Learners write the all-reduced gradient here.
  virtual std::span<float> gradient() = 0;
  // The gradient in device memory, for all-reduces without the host; valid before the first batch.
  // Empty on the CPU. After ReduceOnDevice(true) gradient() is not used, and ComputeGradient
  // notifies its watch of parts that are still being computed on gradient_stream().
  virtual std::span<float> device_gradient() { return {}; }
  // Selects device memory (true) or gradient() for the all-reduce.
  virtual void ReduceOnDevice(bool there) { (void)there; }
  virtual void* gradient_stream() { return nullptr; }  // a cudaStream_t
  virtual int device_ordinal() const { return -1; }    // negative on the CPU
  // Sets the first `count` values of the gradient to 0, on the host or the device, wherever it is
  // all-reduced.
  virtual void ClearGradient(std::int64_t count);
  // Divides the gradient by `given`, the number of learners that contributed to it.
  virtual void DivideGradient(float given);
  // Second half of an update: clip, optimizer step, target network. norm: of gradient(). progress:
  // completed share of the run before this update, [0, 1], for schedules.
  virtual void ApplyGradient(double progress, double norm) = 0;
  // Second half where parameter shards apply the updates: takes [P] as the weights after `updates`
  // updates. The target network follows every learner.target_update_every_updates of them.
  virtual void ReplaceWeights(std::uint64_t updates, std::span<const float> value) = 0;
  // Schedule position where parameter shards apply the updates: several gradients may belong to one
  // version, and other learners may advance the version. Until it is set, both fields follow from
  // updates().
  struct TrainingProgress {
    std::uint64_t batches = 0;  // batches of the run before that of the next gradient; supervised
    double progress = 0;        // before the next gradient, [0, 1], for schedules
  };
  virtual void SetTrainingProgress(const TrainingProgress& training_progress) {
    (void)training_progress;
  }
  // Norm of the current gradient(). With tensor parallelism it covers all ranks, and all must call
  // it.
  virtual double GradientNorm();
  // Sets this learner's rank among those that share an update. Where a batch is split, the rank
  // selects the part.
  virtual void SetRank(int rank, int ranks) { (void)rank, (void)ranks; }
  // With tensor parallelism (nn/parallel/tensor_parallel.h): sets the group of the ranks that hold
  // the other parts, which must outlive its use here; nullptr: no group yet. devices: the same
  // group for device tensors, if all ranks compute on devices; nullptr: exchanges go through the
  // host.
  virtual void SetTensorGroup(Collective* group, Collective* devices) {
    (void)group, (void)devices;
  }
  // The error that ended that group within ComputeGradient or GradientNorm.
  virtual Status tensor_status() const { return Status::Ok(); }
  // Gathers the values of all tensor-parallel parts on each rank, and with `state` all of State();
  // WholeValue() and WholeState() return the result. All ranks must call it. Errors: the one that
  // ended the group.
  virtual Status Gather(bool state) {
    (void)state;
    return Status::Ok();
  }
  // The whole model. With tensor parallelism: the result of the last Gather; empty before the
  // first.
  virtual std::span<const float> WholeValue() const { return value(); }
  virtual TensorFile WholeState() const { return State(); }
  // The cost of updates since the last call, if the algorithm measures it.
  virtual UpdateCost TakeCost() { return {}; }
  // Adds the cost of an all-reduce outside ComputeGradient.
  virtual void CountAllReduce(const AllReduceStats& stats) { (void)stats; }
  // The optimizer with the state that goes with value(), for a caller that applies steps itself.
  virtual Optimizer& optimizer() = 0;
  // Factor that the clip applies to a gradient of that norm.
  virtual double ClipScale(double norm) const = 0;
  virtual float LearningRate(double progress) const = 0;
  // Both halves of an update. Errors: as ComputeGradient; nothing was changed then.
  virtual Result<LossReport> Update(const SampleBatch& batch, double progress,
                                    std::span<float> priority);
  // Announces the batch of the Update after the next one, if it is known; it must not change until
  // then. nullptr: not known. A device copies it during the next update.
  virtual void ExpectNext(const SampleBatch* batch) { (void)batch; }
  // Stores the experience that a batch carries, for algorithms that sample their own batches
  // (replay.placement = "gpu"). Update does this too. Errors: kInvalidArgument: another kind of
  // algorithm.
  virtual Status ApplyTableDelta(const SampleBatch& batch);
  // [B], the items that the last Update sampled.
  struct SampledItem {
    ItemKey key;
    std::uint64_t policy_version = 0;
  };
  virtual std::span<const SampledItem> sampled() const { return {}; }

  // Number of updates made.
  virtual std::uint64_t updates() const = 0;
  virtual std::span<const float> value() const = 0;  // [P], the newest weights
  // Everything needed to resume exactly, except the replay: value, target, optimizer slots and
  // counters.
  virtual TensorFile State() const = 0;
  // Restores such a state. Errors: kInvalidArgument: a state of another algorithm, optimizer or
  // network; nothing was changed then.
  virtual Status SetState(const TensorFile& state) = 0;
  // Restores the values of such a state, but increments the update count, so that the published
  // version is newer than all before. Errors: as SetState; nothing was changed then.
  virtual Status RollBack(const TensorFile& state) = 0;
  // Checks that all values are finite. Errors: kDataLoss: names the first value of State() that is
  // NaN or infinite; kUnavailable: the device has failed permanently, with its message. O(P).
  virtual Status CheckFinite() const = 0;
};

// Makes the algorithm named by config.learner.algorithm. tensor: the part of the model to train.
// learner: index of this learner; learners share the machine's GPUs round-robin. Errors:
// kInvalidArgument: unknown algorithm; the message lists the known names.
Result<std::unique_ptr<Algorithm>> MakeAlgorithm(const Config& config, const EnvSpec& env,
                                                 const TensorParallelRank& tensor = {},
                                                 int learner = 0);

}  // namespace troop
