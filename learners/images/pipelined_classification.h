#pragma once

#include <memory>

#include "datasets/images/augmentation.h"
#include "datasets/images/image.h"
#include "learners/algorithm.h"
#include "nn/parallel/shard_placement.h"

namespace troop {

// Trains one stage of an image classifier, with the ranks of the other stages
// (TensorParallelMember::SetTensorGroup, where rank k holds stage k). Its updates are those of
// MakeImageClassification with the same micro-batches, bit for bit: gradients are added up in the
// order of the micro-batches, and the norm in the order of the parameters. All stages decide
// together whether an update is skipped: one value of any stage that is not finite is enough.
//
// value(), gradient() and State() are the stage's. SetState accepts a state of the stage or of the
// whole model. Gather collects the whole model on rank 0 alone; WholeValue and WholeState are empty
// on the other ranks. The last stage computes the loss, and reports it.
//
// Errors: those of MakeImagePipeline and MakeTextTrainState.
Result<std::unique_ptr<Algorithm>> MakePipelinedClassification(
    const TrainingConfig& config, std::shared_ptr<const ImageData> data,
    const ImageTransform& transform, const TensorParallelRank& place);

}  // namespace troop
