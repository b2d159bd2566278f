#pragma once

#include <memory>

#include "learners/algorithm.h"

namespace troop {

// MakeDqn (learners/rl/dqn.h) with the updates on a GPU: the same loss, steps, checkpoints and
// errors. Weights, gradient and optimizer state live in device memory; value(), gradient() and
// State() copy them on demand. Batches come from host memory; or, with replay.placement = "gpu",
// are sampled from a copy of the replay in device memory (GpuReplay), and then only Update makes
// updates. learner: selects the GPU of that index, round-robin. `network`: as for MakeDqn. Errors:
// kUnavailable: no GPU can be used, with the reason; this program was built without CUDA.
// kInvalidArgument: the config needs the CPU, with the config key; and all errors of MakeDqn.
Result<std::unique_ptr<Algorithm>> MakeGpuDqn(const TrainingConfig& config, const EnvSpec& env,
                                              std::unique_ptr<Module> network, int learner = 0);

}  // namespace troop
