// Implements the evaluation of translation models.

#include "learners/translation/translation_evaluator.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/philox.h"

namespace troop {
namespace {

// Resamples of the pairs; enough for two digits of a 95 % interval.
constexpr std::int64_t kResamples = 400;
constexpr double kTail = 0.025;  // on each side of the interval

}  // namespace

// The weights are copied, since the learner continues.
Result<std::unique_ptr<TranslationEvaluator>> TranslationEvaluator::Make(
    const GnmtConfig& config, const BeamOptions& beam, std::shared_ptr<const TranslationData> data,
    const EvaluationRequest& request, std::span<const float> weights) {
  // Losses need the whole pass, translations the steps; both are made from the same sizes.
  TROOP_ASSIGN_OR_RETURN(auto model, Gnmt::Make(config));
  // Sources within the limit of the data are never truncated.
  TROOP_ASSIGN_OR_RETURN(auto translator, Translator::Make(config, data->subwords, weights,
                                                           std::ssize(data->validation.source)));
  std::unique_ptr<TranslationEvaluator> trial(new TranslationEvaluator(
      std::move(data), request, beam, std::move(model), std::move(translator)));
  trial->value_.assign(weights.begin(), weights.end());
  return trial;
}

// Evenly spread over the pairs, since files may be sorted.
TranslationEvaluator::TranslationEvaluator(std::shared_ptr<const TranslationData> data,
                                           const EvaluationRequest& request,
                                           const BeamOptions& beam, std::unique_ptr<Gnmt> model,
                                           std::unique_ptr<Translator> translator)
    : data_(std::move(data)),
      request_(request),
      beam_(beam),
      model_(std::move(model)),
      translator_(std::move(translator)),
      step_(model_.get()) {
  const std::int64_t all = data_->validation.size(), wanted = std::min(all, request_.episodes);
  for (std::int64_t i = 0; i < wanted; ++i) samples_.push_back(std::int32_t(i * all / wanted));
}

// One pair: the loss of its reference, then its translation.
Evaluator::State TranslationEvaluator::Advance(int) {
  if (next_ == samples_.size() || !status_.ok()) return State::kOver;
  // The loss is that of the reference, whatever the translation is.
  const std::int32_t pair = samples_[next_++];
  const auto losses = step_.Forward({value_}, PackPairs(data_->validation, {&pair, 1}));
  status_ = losses.status();
  if (losses.ok() && !std::isfinite(losses->likelihood)) {
    status_ = DataLoss(
        "the weights of version {} give a non-finite loss: they are damaged, or training diverged; "
        "use an earlier checkpoint",
        request_.version);
  }
  if (!status_.ok()) return State::kOver;
  losses_.likelihood += losses->likelihood;
  losses_.right += losses->right;
  losses_.tokens += losses->tokens;
  Translated made = translator_->TranslateIds(data_->validation.source_of(pair), beam_);
  cut_ += made.cut;
  counts_.push_back(CountBleu(made.text, data_->validation.references[std::size_t(pair)]));
  translations_.push_back(std::move(made.text));
  return next_ == samples_.size() ? State::kOver : State::kBusy;
}

// Corpus BLEU adds up the counts of all pairs before it divides.
std::vector<std::pair<std::string, double>> TranslationEvaluator::Measures() const {
  const BleuCounts all =
      std::accumulate(counts_.begin(), counts_.end(), BleuCounts(),
                      [](BleuCounts sum, const BleuCounts& one) { return sum += one; });
  const double tokens = double(std::max<std::int64_t>(1, losses_.tokens));
  return {{"bleu", BleuScore(all)},
          {"perplexity", std::exp(losses_.likelihood / tokens)},
          {"token_accuracy", double(losses_.right) / tokens},
          {"cut_translations", double(cut_)}};
}

// BLEU is not a mean over pairs, so its spread comes from resamples of the counts.
EvaluationReport TranslationEvaluator::Report() const {
  std::vector<double> scores;
  for (std::int64_t r = 0; r < kResamples; ++r) {
    Rng random(
        {.run_seed = request_.round, .purpose = Purpose::kBootstrap, .episode = std::uint64_t(r)});
    BleuCounts sum;
    for (std::size_t i = 0; i < counts_.size(); ++i)
      sum += counts_[random.Below(std::uint32_t(counts_.size()))];
    scores.push_back(BleuScore(sum));
  }
  // The interval is that of the middle 95 % of the resamples.
  std::ranges::sort(scores);
  const double mean = std::accumulate(scores.begin(), scores.end(), 0.0) / double(kResamples);
  double squares = 0;
  for (const double score : scores) squares += (score - mean) * (score - mean);
  const auto at = std::size_t(kTail * double(kResamples));
  return {.weights_version = request_.version,
          .episodes = std::int64_t(samples_.size()),
          .return_mean = Measures()[0].second,
          .return_std = std::sqrt(squares / double(kResamples)),
          .return_min = scores[at],
          .return_max = scores[scores.size() - 1 - at],
          .length_mean = double(losses_.tokens) / double(std::max<std::size_t>(1, samples_.size())),
          .loss = losses_.likelihood / double(std::max<std::int64_t>(1, losses_.tokens))};
}

}  // namespace troop
