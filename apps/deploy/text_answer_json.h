#pragma once

#include "core/storage/json.h"
#include "learners/supervised/text_predictor.h"

namespace troop {

// Adds the members of an answer: "label" and "probabilities" of a classifier (null for an empty
// text), or "masks" of a masked LM, the candidates for each [MASK]; then "tokens", "unknown" and
// "cut".
void AddTextAnswer(const TextAnswer& answer, bool masked, JsonObject* json);

}  // namespace troop
