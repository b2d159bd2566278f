#pragma once

#include <memory>

#include "learners/algorithm.h"

namespace troop {

// MakeDqn (learners/dqn.h) with the updates on a GPU: the same loss, steps, checkpoints and errors.
// Weights, gradient and optimizer live there; value(), gradient() and State() fetch them when they
// are asked for. Batches come from host memory; or, with replay.placement = "gpu", are drawn from a
// copy of the replay in the device's (DeviceReplay), and then only Update makes updates.
// learner: takes the GPU of that number, round and round. `network`: as MakeDqn's. Errors:
// kUnavailable: no GPU can be used, with the reason; this program was built without CUDA.
// kInvalidArgument: what the config asks for can only be computed on the CPU, with its key; all
// that MakeDqn refuses.
Result<std::unique_ptr<Algorithm>> MakeDeviceDqn(const Config& config, const EnvSpec& env,
                                                 std::unique_ptr<Module> network, int learner = 0);

}  // namespace troop
