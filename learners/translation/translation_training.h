#pragma once

#include <memory>

#include "learners/algorithm.h"
#include "learners/translation/translation_data.h"
#include "nn/translation/gnmt.h"

namespace troop {

// How a translation model is trained.
struct TranslationOptions {
  GnmtConfig model;  // its vocabulary is that of the data
  float label_smoothing = 0.1f;
};

// Trains a translation model on the CPU. An update uses one batch of learner.batch_size pairs of
// similar lengths, whose mean loss per target token all learners share: each takes its part
// (SplitBatch), in micro-batches of learner.micro_batch_size. Batches and dropout follow from
// updates() alone; the SampleBatch is only a permission to update. Deterministic: the same updates
// at the same ranks give the same bytes, and State() continues exactly. The reported loss has label
// smoothing; the accuracy is that of tokens.
//
// Errors: kInvalidArgument: those of CheckGnmt; a vocabulary of another size than that of the data.
Result<std::unique_ptr<Algorithm>> MakeTranslationTraining(
    const TrainingConfig& config, const TranslationOptions& options,
    std::shared_ptr<const TranslationData> data);

}  // namespace troop
