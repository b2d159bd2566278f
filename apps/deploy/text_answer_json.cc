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

// A prediction of classes. Null instead of missing members: all answers of a classifier have one
// form.
void AddClasses(const TextAnswer& answer, bool many, JsonObject* json) {
  const char* const key = many ? "labels" : "label";
  if (answer.classes.empty()) {
    json->Add(key, nullptr).Add("probabilities", nullptr);
    return;
  }
  JsonObject probabilities;
  for (const Likely& one : answer.classes) probabilities.Add(one.name, one.probability);
  if (many) {
    json->Add(key, JsonArray::Of(answer.labels()));
  } else {
    json->Add(key, answer.best().name);
  }
  json->Add("probabilities", probabilities);
}

}  // namespace

void AddTextAnswer(const TextAnswer& answer, const TextPredictor& predictor, JsonObject* json) {
  if (predictor.masked()) {
    JsonArray masks;
    for (const auto& words : answer.masks) masks.Add(WordsJson(words));
    json->Add("masks", masks);
  } else if (predictor.problem() == ProblemType::kRegression) {
    json->Add("value", answer.value ? JsonText(*answer.value) : JsonText(nullptr));
  } else {
    AddClasses(answer, predictor.problem() == ProblemType::kMultiLabel, json);
  }
  json->Add("tokens", answer.tokens).Add("unknown", answer.unknown).Add("cut", answer.cut);
}

}  // namespace troop
