#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "kernels/cuda/device.h"
#include "kernels/cuda/optimizer.h"

// The optimizer of a step on a GPU: its numbers are made there, so that a graph may hold the step.
namespace troop::cuda {

struct StepRule {
  double max_grad_norm = 0;  // 0: no clip
  enum class Kind : std::uint8_t { kAdam, kRmsProp, kSgd } kind = Kind::kAdam;
  double beta1 = 0.9, beta2 = 0.999;  // Adam
  double decay = 0.95;                // RMSProp
  bool centered = true;
  double momentum = 0;  // SGD
  double epsilon = 1e-8, weight_decay = 0;

  bool has_m() const {
    return kind == Kind::kAdam || (kind == Kind::kRmsProp && centered) ||
           (kind == Kind::kSgd && momentum > 0);
  }
  bool has_v() const { return kind != Kind::kSgd; }
};

// What a step reads, on the device.
struct RuleState {
  double learning_rate = 0;  // of the host
  std::int64_t steps = 0;    // made so far
  AdamStep adam;
  RmsPropStep rmsprop;
  SgdStep sgd;
  std::int32_t go = 1;  // 0: the update is refused, and nothing is changed
};

// arrays.n, m, v and so on as they are kept; state: on the device, prepared by NextStep.
void ApplyRule(Stream& stream, const StepRule& rule, RuleState* state, OptimizerArrays arrays);

// Between host memory and the device's, by way of pinned memory; wait for the stream.
void CopyIn(Stream& stream, std::span<const float> from, float* to);
void CopyOut(Stream& stream, const float* from, std::span<float> to);

}  // namespace troop::cuda
