#pragma once

#include <memory>

#include "datasets/images/augmentation.h"
#include "datasets/images/image.h"
#include "learners/algorithm.h"

namespace troop {

// Trains an image classifier on the CPU. An update uses one batch of learner.batch_size images,
// whose mean loss all learners share: each takes its part (SplitBatch), in micro-batches of
// learner.micro_batch_size, whose statistics normalize them. Images, batches and random changes
// follow from updates() alone; the SampleBatch is only a permission to update.
//
// The running statistics have no gradient. gradient() carries the mean of the batch's statistics at
// their places, so that an all-reduce averages them, too; ApplyGradient takes them out and moves
// the running ones. If a learner's part is left out, the other parts keep the factors of the whole
// batch. Deterministic: the same updates at the same ranks give the same bytes.
//
// tensor: this learner's stage, if the classifier is cut into a pipeline of several
// (MakePipelinedClassification).
// Errors: those of LoadImageData and TransformOf; kInvalidArgument: learner.device = "cuda".
Result<std::unique_ptr<Algorithm>> MakeImageClassification(const TrainingConfig& config,
                                                           const TensorParallelRank& tensor = {});
// MakeImageClassification for data already in memory.
Result<std::unique_ptr<Algorithm>> MakeImageClassification(const TrainingConfig& config,
                                                           std::shared_ptr<const ImageData> data,
                                                           const ImageTransform& transform);

}  // namespace troop
