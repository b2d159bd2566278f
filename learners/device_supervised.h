#pragma once

#include <memory>
#include <span>

#include "learners/supervised.h"

namespace troop {

// MakeSupervised with the updates on a GPU: transformers, with the same losses, drops, steps,
// checkpoints and errors. learner: takes the GPU of that number, round and round. Errors:
// kUnavailable: no GPU can be used, with the reason; this program was built without CUDA.
// kInvalidArgument: what the config asks for can only be computed on the CPU, with its key; all
// that MakeSupervised refuses.
Result<std::unique_ptr<Algorithm>> MakeDeviceSupervised(const Config& config,
                                                        std::shared_ptr<const ReviewData> data,
                                                        const TensorPlace& tensor = {},
                                                        int learner = 0);

// Forward passes and losses of a model with weights [P] on a GPU. One owner thread.
class DeviceJudge {
 public:
  virtual ~DeviceJudge() = default;
  // As TextStep::Forward. Errors: kUnavailable: the device, with its words.
  virtual Result<TextOutcome> Judge(const TextBatch& batch) = 0;
};
// Errors: as MakeDeviceSupervised's.
Result<std::unique_ptr<DeviceJudge>> MakeDeviceJudge(const Config& config,
                                                     std::span<const float> value);

}  // namespace troop
