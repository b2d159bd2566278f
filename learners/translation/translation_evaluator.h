#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "datasets/translation/bleu.h"
#include "learners/translation/translation_step.h"
#include "learners/translation/translator.h"
#include "paramserver/weights/evaluator.h"

namespace troop {

// Evaluates the weights of a translation model on the validation pairs, or on an evenly spread
// subset: BLEU of its translations, and the loss of the references. A slice is one pair. The
// report's return is BLEU, 0 to 100; its interval comes from bootstrap resamples of the pairs
// (Koehn 2004), keyed by the round of the trial. The loss is per token, without label smoothing.
class TranslationEvaluator final : public Evaluator {
 public:
  // Errors: those of Translator::Make.
  static Result<std::unique_ptr<TranslationEvaluator>> Make(
      const GnmtConfig& config, const BeamOptions& beam,
      std::shared_ptr<const TranslationData> data, const EvaluationRequest& request,
      std::span<const float> weights);
  State Advance(int steps) override;
  const Status& error() const override { return status_; }
  EvaluationReport Report() const override;
  // bleu, perplexity, token_accuracy and cut_translations.
  std::vector<std::pair<std::string, double>> Measures() const override;
  std::int64_t judged() const { return std::int64_t(next_); }  // pairs so far
  // The translations so far, in the order of the pairs.
  const std::vector<std::string>& translations() const { return translations_; }

 private:
  TranslationEvaluator(std::shared_ptr<const TranslationData> data,
                       const EvaluationRequest& request, const BeamOptions& beam,
                       std::unique_ptr<Gnmt> model, std::unique_ptr<Translator> translator);

  const std::shared_ptr<const TranslationData> data_;
  const EvaluationRequest request_;
  const BeamOptions beam_;
  const std::unique_ptr<Gnmt> model_;
  const std::unique_ptr<Translator> translator_;
  std::vector<float> value_;  // [P]
  TranslationStep step_;
  std::vector<std::int32_t> samples_;
  // Progress: the next of samples_, and the results so far.
  std::size_t next_ = 0;
  TokenLosses losses_;
  std::vector<BleuCounts> counts_;  // per pair
  std::vector<std::string> translations_;
  std::int64_t cut_ = 0;
  Status status_;
};

}  // namespace troop
