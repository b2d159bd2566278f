// Implements the JSON form of predictions for texts, of `troop predict --json` and `troop serve`.
#include "apps/deploy/text_answer_json.h"

#include <vector>

namespace troop {
namespace {

// The candidates for one [MASK].
JsonArray WordsJson(const std::vector<Likely>& words) {
  JsonArray out;
  for (const Likely& one : words) {
    out.Add(JsonObject().Add("word", one.name).Add("probability", one.probability));
  }
  return out;
}

}  // namespace

void AddTextAnswer(const TextAnswer& answer, bool masked, JsonObject* json) {
  if (masked) {
    JsonArray masks;
    for (const auto& words : answer.masks) masks.Add(WordsJson(words));
    json->Add("masks", masks);
  } else if (answer.classes.empty()) {
    // Null instead of missing members: all answers of a classifier have one form.
    json->Add("label", nullptr).Add("probabilities", nullptr);
  } else {
    JsonObject probabilities;
    for (const Likely& one : answer.classes) probabilities.Add(one.name, one.probability);
    json->Add("label", answer.best().name).Add("probabilities", probabilities);
  }
  json->Add("tokens", answer.tokens).Add("unknown", answer.unknown).Add("cut", answer.cut);
}

}  // namespace troop
