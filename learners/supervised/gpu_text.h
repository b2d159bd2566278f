#pragma once

#ifdef TROOP_HAS_CUDA

#include <memory>
#include <string_view>

#include "learners/gpu/cuda/text_step.h"
#include "learners/training_config.h"
#include "nn/parallel/shard_placement.h"
#include "nn/transformer/transformer.h"

namespace troop {

// A GPU, with the options of a training step for the config's model or for one tensor-parallel
// part.
struct TextDevice {
  std::unique_ptr<cuda::Device> device;
  cuda::TextStepOptions step;
  TokenBounds bounds;
  int ordinal = 0;
};
// Opens the GPU of a learner. learner: selects the GPU of that index, round-robin. Errors: as
// MakeGpuSupervised.
Result<TextDevice> OpenTextDevice(const TrainingConfig& config, const TensorParallelRank& place,
                                  int learner);

}  // namespace troop

#endif
