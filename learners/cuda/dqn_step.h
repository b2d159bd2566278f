#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "kernels/cuda/device.h"
#include "learners/cuda/step_rule.h"
#include "learners/cuda/trained_on_device.h"
#include "nn/cuda/q_network.h"

// A whole update of double DQN (learners/dqn.h) on a GPU: both forward passes, loss, gradient,
// norm, clip, optimizer step and target, started by one call as one CUDA graph. Nothing is
// allocated by it and nobody waits in it.
namespace troop::cuda {

struct DqnStepOptions {
  QNetworkSpec network;
  Precision precision = Precision::kF32;
  std::int64_t batch = 0, steps = 1;  // items; steps of the longest one
  double gamma = 0.99, reward_clip = 0;
  bool huber = true, double_q = true;
  // What network.numbers say of a value: it, by DqnLoss; logits of atoms from v_min to v_max, by
  // CategoricalLoss; or quantiles, by QuantileLoss.
  enum class Values : std::uint8_t { kScalar, kCategorical, kQuantile } values = Values::kScalar;
  double v_min = 0, v_max = 0;
  StepRule rule;
  std::int64_t target_update_steps = 1000;
  double target_tau = 1;
  bool graph = true;  // false: the same calls on a stream, one by one; the same bytes
};

// Where a batch is put, on the device, before Run; and where its priorities are afterwards. The
// addresses never change.
struct DqnBatch {
  void* observation = nullptr;     // [2 B, input_elements]: the first of each item, then the last
  std::int32_t* action = nullptr;  // [B]
  float* reward = nullptr;         // [B, steps]
  float* discount = nullptr;       // [B, steps]
  std::int32_t* length = nullptr;  // [B]
  float* weight = nullptr;         // [B]
  float* priority = nullptr;       // [B], written: |TD error|
};

// What became of an update. Fixed layout: it is copied from the device.
struct DqnStepReport {
  double loss = 0, td_error_mean = 0, q_mean = 0;
  double gradient_norm = 0;  // before the clip
  std::int64_t updates = 0;  // made so far, this one included
  std::int32_t finite = 0;   // 0: loss or gradient was not; then nothing is changed
  std::int32_t reserved = 0;
};

class DqnStep final : public TrainedOnDevice {
 public:
  // The target begins at 0, as the value does: SetState.
  DqnStep(Device& device, const DqnStepOptions& options);
  ~DqnStep() override;

  const DqnBatch& batch() const;
  // What is to be done in front of an update and behind it, on its stream and in its graph: draw a
  // batch from a table in GPU memory, give its priorities back. Set before the first Run.
  void Surround(std::function<void(Stream&)> before, std::function<void(Stream&)> after);
  // An update with what batch() has by then, in the stream's order. At most kUnderWay may be under
  // way: then it waits for the oldest.
  static constexpr int kUnderWay = 4;
  void Run(Stream& stream, double learning_rate);
  // The two halves of it, for learners that agree in between: gradient() of batch(), with a report;
  // and the step with what gradient() is by then, whose norm is taken again if it was changed.
  // ready: as QNetwork::Backward's; then it is no graph, but the calls one by one, and it waits for
  // the loss: of one that is not finite nothing is told.
  void RunGradient(Stream& stream, const QNetwork::Ready& ready = {});
  void RunStep(Stream& stream, double learning_rate, bool changed);
  float* gradient() const override;
  const float* value() const override;
  // The next report, in order of the Runs and RunGradients; waits for it. REQUIRES: as many of them
  // as calls.
  DqnStepReport NextReport();
  double GradientNorm(Stream& stream) override;
  void GetState(Stream& stream, State* state) override;
  void SetState(Stream& stream, const State& state) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace troop::cuda
