#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "datasets/translation/subwords.h"
#include "nn/translation/sentence_decoder.h"

namespace troop {

// A translation of a text.
struct Translated {
  std::string text;
  double score = 0;        // BeamScore
  bool cut = false;        // true: it reached the length limit without an end
  bool truncated = false;  // true: the end of the source was left out
};

// Translates texts with trained weights. One owner thread.
class Translator {
 public:
  // weights: [P], as those of Gnmt. source_max: subwords of a source; longer ones are truncated.
  // Errors: those of Gnmt::Make; kInvalidArgument: another number of weights, or a vocabulary of
  // another size than the model's.
  static Result<std::unique_ptr<Translator>> Make(const GnmtConfig& config, Subwords subwords,
                                                  std::span<const float> weights,
                                                  std::int64_t source_max);
  // Translates a text by beam search; options.begin and .end are those of the vocabulary. A text
  // without words gives an empty translation.
  Translated Translate(std::string_view text, const BeamOptions& options);
  // Translate for ids of the vocabulary.
  Translated TranslateIds(std::span<const TokenId> source, BeamOptions options);

 private:
  Translator(std::unique_ptr<Gnmt> model, Subwords subwords, std::span<const float> weights,
             std::int64_t source_max);

  const std::unique_ptr<Gnmt> model_;
  const Subwords subwords_;
  const std::vector<float> value_;  // [P]
  const std::int64_t source_max_;
  SentenceDecoder decoder_;
};

}  // namespace troop
