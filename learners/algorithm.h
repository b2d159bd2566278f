#pragma once

#include <memory>
#include <span>

#include "core/tensor/spec.h"
#include "learners/batch_partition.h"
#include "learners/cost_reporting.h"
#include "learners/device_gradient.h"
#include "learners/external_optimizer.h"
#include "learners/fused_update.h"
#include "learners/gpu_replay_consumer.h"
#include "learners/loss_report.h"
#include "learners/model_files.h"
#include "learners/tensor_parallel_member.h"
#include "learners/training_config.h"
#include "nn/io/safetensors.h"
#include "nn/module.h"
#include "nn/parallel/tensor_parallel.h"
#include "nn/sparse/row_gradients.h"
#include "replay/codec/sample_batch.h"

namespace troop {

// A learning algorithm: loss, gradient, priorities and optimizer step. DQN, DPG, TD3 and SAC differ
// only here. One owner thread at a time (the learner hands it to one job at a time). Deterministic.
// What only some algorithms support is in optional interfaces, which callers obtain once.
class Algorithm {
 public:
  virtual ~Algorithm() = default;
  // First half of an update: computes the gradient of the batch's mean loss at value(). priority:
  // [B], |TD error| of each item, before the exponent α. `watch` is notified during backward of the
  // parts that are complete; nullptr: no notification.
  // Errors: kDataLoss: loss or gradient is not finite; the message names the batch item or the
  // parameter it comes from. kInvalidArgument: the batch does not fit. kCancelled: an external
  // program refused it. No gradient is computed then.
  virtual Result<LossReport> ComputeGradient(const SampleBatch& batch, std::span<float> priority,
                                             GradientWatch* watch = nullptr) = 0;
  // [P], the result of the last ComputeGradient. Learners write the all-reduced gradient here.
  virtual std::span<float> gradient() = 0;
  // Norm of the current gradient. With tensor parallelism it covers all ranks, and all must call
  // it.
  virtual double GradientNorm();
  // Second half of an update: clip, optimizer step, target network. norm: of gradient(). progress:
  // completed share of the run before this update, [0, 1], for schedules.
  virtual void ApplyGradient(double progress, double norm) = 0;
  // Both halves of an update; fused_update() runs them if there is one. Errors: as ComputeGradient;
  // nothing was changed then.
  Result<LossReport> Update(const SampleBatch& batch, double progress, std::span<float> priority);

  virtual float LearningRate(double progress) const = 0;
  virtual int device_ordinal() const { return -1; }  // of the GPU; negative on the CPU
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

  // Optional interfaces, constant during the algorithm's life; nullptr: not supported.
  virtual DeviceGradient* device_gradient() { return nullptr; }
  virtual TensorParallelMember* tensor_parallel() { return nullptr; }
  virtual ExternalOptimizer* external_optimizer() { return nullptr; }
  virtual BatchPartition* batch_partition() { return nullptr; }
  virtual CostReporting* cost_reporting() { return nullptr; }
  virtual FusedUpdate* fused_update() { return nullptr; }
  virtual const ModelFiles* model_files() const { return nullptr; }
  virtual GpuReplayConsumer* gpu_replay() { return nullptr; }
  virtual RowGradients* row_gradients() { return nullptr; }
};

// Makes the algorithm named by config.learner.algorithm. tensor: the part of the model to train.
// learner: index of this learner; learners share the machine's GPUs round-robin. Errors:
// kInvalidArgument: unknown algorithm; the message lists the known names.
Result<std::unique_ptr<Algorithm>> MakeAlgorithm(const TrainingConfig& config, const EnvSpec& env,
                                                 const TensorParallelRank& tensor = {},
                                                 int learner = 0);

}  // namespace troop
