#pragma once

#include <memory>

#include "core/config/config.h"
#include "core/tensor/spec.h"
#include "nn/module.h"
#include "nn/transformer/transformer.h"

namespace troop {

// Options of the transformer in a supervised config (IsSupervised): config.model, with the head of
// learner.algorithm. Errors: kInvalidArgument with the key; model.vocab_size must be set already.
Result<TransformerOptions> TextModelOptions(const Config& config);
// Creates the model of a supervised config. tensor: the rank's place in a tensor-parallel group.
Result<std::unique_ptr<Module>> MakeTextModel(const Config& config,
                                              const TensorParallelRank& tensor = {});

// Supervised classification in the form of an environment: token ids are the observation, the class
// is the action.
EnvSpec ReviewSpec(const Config& config);

}  // namespace troop
