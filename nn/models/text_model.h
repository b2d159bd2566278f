#pragma once

#include <memory>

#include "core/base/status.h"
#include "core/tensor/spec.h"
#include "nn/images/image_classifier.h"
#include "nn/models/lstm_classifier.h"
#include "nn/models/model_setup.h"
#include "nn/module.h"
#include "nn/transformer/transformer.h"

namespace troop {

// Options of the transformer of a supervised run (IsSupervised): setup.model, with the head of
// setup.algorithm. Errors: kInvalidArgument with the key; model.vocab_size must be set already.
Result<TransformerOptions> TextModelOptions(const ModelSetup& setup);
// Options of the LSTM of a supervised run, which is a classifier. Errors: as above.
Result<LstmConfig> LstmModelOptions(const ModelSetup& setup);
// Options of the image classifier of a supervised run. REQUIRES: ClassifiesImages.
ImageModelOptions ImageOptionsOf(const ModelConfig& model);
// Creates the model of a supervised run, of texts or images. tensor: the rank's place in a
// tensor-parallel group; the whole model for images and the LSTM.
Result<std::unique_ptr<Module>> MakeTextModel(const ModelSetup& setup,
                                              const TensorParallelRank& tensor = {});

// Supervised classification in the form of an environment: token ids or pixels are the observation,
// the class is the action.
EnvSpec ReviewSpec(const ModelSetup& setup);

}  // namespace troop
