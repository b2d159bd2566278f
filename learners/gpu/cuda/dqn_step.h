#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "kernels/cuda/runtime/device.h"
#include "learners/gpu/cuda/optimizer_step.h"
#include "learners/gpu/cuda/train_state.h"
#include "nn/cuda/q_network.h"

// A complete update of double DQN (learners/rl/dqn.h) on a GPU: both forward passes, loss,
// gradient, norm, clip, optimizer step and target, launched by one call as one CUDA graph. An
// update neither allocates nor synchronizes.
namespace troop::cuda {

struct DqnStepOptions {
  QNetworkSpec network;
  Precision precision = Precision::kF32;
  std::int64_t batch = 0, steps = 1;  // items; steps of the longest item
  double gamma = 0.99, reward_clip = 0;
  bool huber = true, double_q = true;
  // Meaning of the network's outputs per action value: a scalar, by DqnLoss; logits of atoms from
  // v_min to v_max, by CategoricalLoss; or quantiles, by QuantileLoss.
  enum class Values : std::uint8_t { kScalar, kCategorical, kQuantile } values = Values::kScalar;
  double v_min = 0, v_max = 0;
  OptimizerRule rule;
  std::int64_t target_update_every_updates = 1000;
  double target_tau = 1;
  bool graph = true;  // false: the same kernels launched one by one on a stream; the same bytes
};

// Device buffers for a batch, filled before Run, and for its priorities after it. The addresses
// never change.
struct DqnBatch {
  void* observation = nullptr;     // [2 B, input_elements]: all first ones, then all last ones
  std::int32_t* action = nullptr;  // [B]
  float* reward = nullptr;         // [B, steps]
  float* discount = nullptr;       // [B, steps]
  std::int32_t* length = nullptr;  // [B]
  float* weight = nullptr;         // [B]
  float* priority = nullptr;       // [B], output: |TD error|
};

// Result of an update. Fixed layout, because it is copied from the device.
struct DqnStepReport {
  double loss = 0, td_error_mean = 0, q_mean = 0;
  double gradient_norm = 0;  // before the clip
  std::int64_t updates = 0;  // made so far, this one included
  std::int32_t finite = 0;   // 0: loss or gradient was not finite, and nothing was changed
  std::int32_t reserved = 0;
};

// DQN training step on a device. All work is enqueued on the caller's stream.
class DqnStep final : public GpuTrainState {
 public:
  // Value and target start at 0; call SetState.
  DqnStep(Device& device, const DqnStepOptions& options);
  ~DqnStep() override;

  const DqnBatch& batch() const;
  // Sets work to enqueue before and after each update, on its stream and in its graph: sampling a
  // batch from a table in GPU memory, and writing its priorities back. Call before the first Run.
  void Surround(std::function<void(Stream&)> before, std::function<void(Stream&)> after);
  // Enqueues an update with the contents that batch() has at that point of the stream. At most
  // kUnderWay updates may be pending; another call waits for the oldest.
  static constexpr int kUnderWay = 4;
  void Run(Stream& stream, double learning_rate);
  // The two halves of an update, for learners that all-reduce in between: RunGradient computes
  // gradient() of batch(), with a report; RunStep applies the current gradient(), and recomputes
  // its norm if `changed`. ready: as in QNetwork::Backward; if set, kernels are launched one by one
  // instead of as a graph, and the call waits for the loss: `ready` is not called if the loss is
  // not finite.
  void RunGradient(Stream& stream, const QNetwork::Ready& ready = {});
  void RunStep(Stream& stream, double learning_rate, bool changed);
  float* gradient() const override;
  const float* value() const override;
  // The next report, in order of the Runs and RunGradients; waits for it. REQUIRES: a report is
  // pending.
  DqnStepReport NextReport();
  double GradientNorm(Stream& stream) override;
  void GetState(Stream& stream, State* state) override;
  void SetState(Stream& stream, const State& state) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace troop::cuda
