#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "kernels/cuda/ops/optimizer_step.h"
#include "kernels/cuda/runtime/device.h"

// The optimizer of a training step on a GPU. Its coefficients are computed on the device, so that a
// CUDA graph can contain the step.
namespace troop::cuda {

// Optimizer settings, constant for a run (learners/gpu/optimizer_rule.h makes them from a
// config).
struct OptimizerRule {
  double max_grad_norm = 0;  // 0: no clip
  enum class Kind : std::uint8_t { kAdam, kRmsProp, kSgd } kind = Kind::kAdam;
  bool rectified = false;             // Adam: RAdam instead
  double beta1 = 0.9, beta2 = 0.999;  // Adam
  double decay = 0.95;                // RMSProp
  bool centered = true;
  double momentum = 0;  // SGD
  double epsilon = 1e-8, weight_decay = 0;

  // True if the optimizer has a first (second) moment slot.
  bool has_m() const {
    return kind == Kind::kAdam || (kind == Kind::kRmsProp && centered) ||
           (kind == Kind::kSgd && momentum > 0);
  }
  bool has_v() const { return kind != Kind::kSgd; }
};

// Inputs of a step in device memory.
struct OptimizerState {
  double learning_rate = 0;  // written by the host
  std::int64_t steps = 0;    // made so far
  AdamStep adam;
  RmsPropStep rmsprop;
  SgdStep sgd;
  std::int32_t go = 1;  // 0: skip the update and change nothing
};

// Applies one step. state: device memory, prepared by NextStep (optimizer_step_device.h). arrays:
// `go` is ignored; state->go is used. Asynchronous on `stream`.
void ApplyOptimizer(Stream& stream, const OptimizerRule& rule, OptimizerState* state,
                    OptimizerArrays arrays);

// Copies between host and device memory through pinned memory; both wait for the stream. After an
// error of the device (Device::ok) the destination may be unchanged.
void CopyIn(Stream& stream, std::span<const float> from, float* to);
void CopyOut(Stream& stream, const float* from, std::span<float> to);

}  // namespace troop::cuda
