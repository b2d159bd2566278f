#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/config/problem_type.h"
#include "core/storage/storage.h"
#include "datasets/sparse/ngram_vectorizer.h"
#include "nn/sparse/linear_model.h"

namespace troop {

// A trained linear model with what predictions need. A plain value.
struct LinearModelParts {
  LinearForm form;
  ProblemType problem = ProblemType::kSingleLabel;
  std::vector<std::string> labels;            // names of the classes by id; kRegression: none
  std::vector<float> weights;                 // [form.rows(), form.outputs]
  std::optional<NgramVectorizer> vectorizer;  // nullopt: the features are numbers of svmlight files
};

// Writes a model to a folder:
//   config.json        "model_type": "troop_linear", classes, loss, and the options of the n-grams
//   model.safetensors  "weight" [outputs, features] and "bias" [outputs], as those of
//                      torch.nn.Linear; "idf" [features], if it is used
//   terms.txt          the vocabulary, one term per line in column order; \\, \n and \r in a term
//                      are written as \\\\, \\n and \\r. No file if n-grams are hashed
// Blocks on the disk. Errors: those of the storage.
Status WriteLinearModel(const LinearModelParts& model, std::string_view folder, Storage* storage);

// True if the text of a config.json is that of a linear model.
bool IsLinearModelConfig(std::string_view config_json);
// Reads such a folder, which is untrusted. Blocks on the disk. Errors, with the name of the file:
// kNotFound: it is missing; kDataLoss: it is damaged, or contradicts the others;
// kInvalidArgument: not a linear model, or a setting with another value than this version writes.
Result<LinearModelParts> ReadLinearModel(std::string_view folder, Storage* storage);

}  // namespace troop
