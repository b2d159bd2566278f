#pragma once

#include <memory>

#include "core/config.h"
#include "core/spec.h"
#include "nn/module.h"
#include "nn/transformer.h"

namespace troop {

// The model of a supervised config (IsSupervised): config.model, with the head of
// learner.algorithm. Errors: kInvalidArgument with the key; model.vocabulary must be known by now.
// TextModelOptions: of transformers.
Result<TransformerOptions> TextModelOptions(const Config& config);
// tensor: the part of it that a rank has.
Result<std::unique_ptr<Module>> MakeTextModel(const Config& config, const TensorPlace& tensor = {});

// Reviews as what roles are told of a run's problem: token ids are observed, a class is chosen.
EnvSpec ReviewSpec(const Config& config);

}  // namespace troop
