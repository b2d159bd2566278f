// Implements predictions of texts by linear models.

#include "learners/linear/model/linear_texts.h"

#include "core/tensor/sparse_rows.h"
#include "nn/sparse/linear_outputs.h"

namespace troop {

Result<std::shared_ptr<const LinearTexts>> LinearTexts::Make(LinearModelParts model) {
  if (!model.vectorizer) {
    return InvalidArgument(
        "the model was trained on svmlight files, so it reads no texts; use troop eval");
  }
  return std::shared_ptr<const LinearTexts>(new LinearTexts(std::move(model)));
}

// The files are read at once: predictions need all weights.
Result<std::shared_ptr<const LinearTexts>> LinearTexts::Read(const std::string& folder) {
  TROOP_ASSIGN_OR_RETURN(const auto storage, MakeDiskStorage(folder));
  TROOP_ASSIGN_OR_RETURN(LinearModelParts model, ReadLinearModel("", storage.get()));
  return Make(std::move(model));
}

// One row, whose only place is at the front.
LinearTexts::Features LinearTexts::Encode(std::string_view text) const {
  SparseRows rows{.width = model_.form.features};
  model_.vectorizer->Transform(text, &rows);
  return {std::move(rows.columns), std::move(rows.values)};
}

// The sums are in f64, as those of evaluations.
void LinearTexts::AppendLogits(std::span<const std::int32_t> columns, std::span<const float> values,
                               std::vector<float>* logits) const {
  std::vector<double> outputs(std::size_t(model_.form.outputs));
  LinearOutputs(model_.form, model_.weights, {columns, values}, outputs);
  AppendLinearLogits(model_.problem, outputs, logits);
}

}  // namespace troop
