#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/runtime/device.h"

namespace troop::cuda {

// Interface of a device-side training step: weights, gradient and optimizer state in device memory.
class GpuTrainState {
 public:
  virtual ~GpuTrainState() = default;
  virtual float* gradient() const = 0;  // [P], on the device
  // [P], on the device.
  virtual const float* value() const = 0;
  // Norm of the current gradient(), before the clip; waits for the stream.
  virtual double GradientNorm(Stream& stream) = 0;

  // Host buffers of [P] each; empty: not requested. m, v: the optimizer's slots, if its rule has
  // them; target: if there is one. GetState and SetState wait for the stream.
  struct State {
    std::span<float> value, target, m, v;
    std::int64_t updates = 0;  // counter of the target updates
    std::int64_t steps = 0;    // of the optimizer; fewer than `updates` after a rollback
  };
  virtual void GetState(Stream& stream, State* state) = 0;
  virtual void SetState(Stream& stream, const State& state) = 0;
};

}  // namespace troop::cuda
