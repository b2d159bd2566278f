#pragma once

#ifdef TROOP_HAS_CUDA

#include <memory>
#include <string_view>

#include "core/config.h"
#include "learners/cuda/text_step.h"
#include "nn/tensor_place.h"
#include "nn/transformer.h"

namespace troop {

// A GPU, and what a step of the config's model, or of a part of it, is there.
struct TextDevice {
  std::unique_ptr<cuda::Device> device;
  cuda::TextStepOptions step;
  TokenBounds bounds;
  int ordinal = 0;
};
// learner: takes the GPU of that number, round and round. Errors: as MakeDeviceSupervised's.
Result<TextDevice> OpenTextDevice(const Config& config, const TensorPlace& place, int learner);

}  // namespace troop

#endif
