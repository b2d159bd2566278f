#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/device.h"

namespace troop::cuda {

// Weights that a step on a device trains, with what goes with them.
class TrainedOnDevice {
 public:
  virtual ~TrainedOnDevice() = default;
  virtual float* gradient() const = 0;  // [P], on the device
  virtual const float* value() const = 0;
  // Of what gradient() is by then, before the clip; waits for the stream.
  virtual double GradientNorm(Stream& stream) = 0;

  // [P] each. Empty: not wanted. m, v: the optimizer's slots, where its rule has them; target:
  // where there is one. Both wait for the stream.
  struct State {
    std::span<float> value, target, m, v;
    std::int64_t updates = 0;  // which the target's changes count by
    std::int64_t steps = 0;    // of the optimizer: fewer where updates were rolled back
  };
  virtual void GetState(Stream& stream, State* state) = 0;
  virtual void SetState(Stream& stream, const State& state) = 0;
};

}  // namespace troop::cuda
