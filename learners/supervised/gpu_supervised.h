#pragma once

#include <memory>
#include <span>

#include "learners/supervised/supervised.h"

namespace troop {

// MakeSupervised with the updates on a GPU: transformers, with the same losses, dropout, steps,
// checkpoints and errors. learner: selects the GPU of that index, round-robin. Errors:
// kUnavailable: no GPU can be used, with the reason; this program was built without CUDA.
// kInvalidArgument: the config needs the CPU, with the config key; and all errors of
// MakeSupervised.
Result<std::unique_ptr<Algorithm>> MakeGpuSupervised(const TrainingConfig& config,
                                                     std::shared_ptr<const ReviewData> data,
                                                     const TensorParallelRank& tensor = {},
                                                     int learner = 0);

// Forward passes and losses of a model with weights [P] on a GPU. One owner thread.
class GpuTextEvaluator {
 public:
  virtual ~GpuTextEvaluator() = default;
  // Evaluates a batch as TextStep::Forward does. Errors: kUnavailable: a device error, with its
  // message.
  virtual Result<TextOutcome> Judge(const TextBatch& batch) = 0;
  // Logits of the last Judge, as TextStep::logits; masked LM: empty.
  virtual std::span<const float> logits() const = 0;
};
// Makes a GpuTextEvaluator for these weights. Errors: as MakeGpuSupervised.
Result<std::unique_ptr<GpuTextEvaluator>> MakeGpuTextEvaluator(const TrainingConfig& config,
                                                               std::span<const float> value);

}  // namespace troop
