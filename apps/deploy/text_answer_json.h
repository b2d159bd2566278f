#pragma once

#include "core/storage/json.h"
#include "learners/supervised/text_predictor.h"

namespace troop {

// Adds the members of an answer of `predictor`, by its kind (null for an empty text):
//   one class:  "label" and "probabilities"
//   labels:     "labels", those above 1/2, and "probabilities"
//   regression: "value"
//   masked LM:  "masks", the candidates for each [MASK]
// then "tokens", "unknown" and "cut".
void AddTextAnswer(const TextAnswer& answer, const TextPredictor& predictor, JsonObject* json);

}  // namespace troop
