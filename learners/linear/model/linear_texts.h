#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "learners/linear/model/linear_model_folder.h"

namespace troop {

// A linear model with its n-grams, which predicts texts. Immutable: any thread may call it.
class LinearTexts {
 public:
  // Errors: kInvalidArgument: the model has no n-grams, because it was trained on svmlight files.
  static Result<std::shared_ptr<const LinearTexts>> Make(LinearModelParts model);
  // Reads the model/ of a run, as ReadLinearModel, and Make. Errors: those of both.
  static Result<std::shared_ptr<const LinearTexts>> Read(const std::string& folder);

  // Features of a text: columns and values of equal length.
  struct Features {
    std::vector<std::int32_t> columns;
    std::vector<float> values;
  };
  Features Encode(std::string_view text) const;
  // Appends the logits of features, as AppendLinearLogits has them. REQUIRES: those of Encode.
  void AppendLogits(std::span<const std::int32_t> columns, std::span<const float> values,
                    std::vector<float>* logits) const;

  const LinearModelParts& model() const { return model_; }

 private:
  explicit LinearTexts(LinearModelParts model) : model_(std::move(model)) {}
  const LinearModelParts model_;
};

}  // namespace troop
