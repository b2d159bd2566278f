// Implements translation of texts.

#include "learners/translation/translator.h"

#include <algorithm>

#include "nn/models/model.h"

namespace troop {

// The weights may come from a file, so their number is checked.
Result<std::unique_ptr<Translator>> Translator::Make(const GnmtConfig& config, Subwords subwords,
                                                     std::span<const float> weights,
                                                     std::int64_t source_max) {
  TROOP_ASSIGN_OR_RETURN(auto model, Gnmt::Make(config));
  if (std::ssize(weights) != ParameterCount(*model)) {
    return InvalidArgument("{} weights, but the model has {} parameters", weights.size(),
                           ParameterCount(*model));
  }
  if (subwords.size() != config.vocabulary) {
    return InvalidArgument("{} subwords, but the model has a vocabulary of {}", subwords.size(),
                           config.vocabulary);
  }
  return std::unique_ptr<Translator>(
      new Translator(std::move(model), std::move(subwords), weights, source_max));
}

Translator::Translator(std::unique_ptr<Gnmt> model, Subwords subwords,
                       std::span<const float> weights, std::int64_t source_max)
    : model_(std::move(model)),
      subwords_(std::move(subwords)),
      value_(weights.begin(), weights.end()),
      source_max_(source_max),
      decoder_(model_.get(), value_, nullptr) {}

// Words are separated as in training.
Translated Translator::Translate(std::string_view text, const BeamOptions& options) {
  return TranslateIds(subwords_.Encode(text), options);
}

// The memory of a sentence grows with its length, so an untrusted text is truncated.
Translated Translator::TranslateIds(std::span<const TokenId> source, BeamOptions options) {
  // The encoder needs at least one subword.
  if (source.empty()) return {};
  const bool truncated = std::ssize(source) > source_max_;
  // Those of the vocabulary, whatever the caller has set.
  options.begin = Subwords::kBegin;
  options.end = Subwords::kEnd;
  const Hypothesis found =
      decoder_.Translate(truncated ? source.first(std::size_t(source_max_)) : source, options);
  return {subwords_.Decode(found.tokens), found.score, found.cut, truncated};
}

}  // namespace troop
