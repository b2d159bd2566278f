// Implements the evaluation of weights on reviews.

#include "learners/supervised/text_evaluator.h"

#include <algorithm>
#include <cmath>

#include "core/metrics/wilson_interval.h"
#include "nn/models/model.h"
#include "nn/models/text_model.h"

namespace troop {
namespace {

constexpr std::int64_t kTokensOfSlice =
    4096;  // bounds the time of one Advance, so that the role keeps its heartbeat

}  // namespace

Result<std::unique_ptr<SentimentEvaluator>> SentimentEvaluator::Make(
    const TrainingConfig& config, std::shared_ptr<const ReviewData> data,
    const EvaluationRequest& options, std::span<const float> weights) {
  TROOP_ASSIGN_OR_RETURN(std::unique_ptr<Module> module, MakeTextModel(ModelSetupOf(config)));
  if (std::int64_t(weights.size()) != ParameterCount(*module)) {
    return InvalidArgument("{} weights, but the model has {} parameters", weights.size(),
                           ParameterCount(*module));
  }
  std::unique_ptr<SentimentEvaluator> trial(
      new SentimentEvaluator(config, std::move(data), options, std::move(module)));
  // A missing GPU is an error only if the config requires one.
  if (config.learner.device != DeviceChoice::kCpu) {
    auto judge = MakeGpuTextEvaluator(config, weights);
    if (!judge.ok() && config.learner.device == DeviceChoice::kCuda) return judge.status();
    if (judge.ok()) trial->on_device_ = *std::move(judge);
  }
  trial->value_.assign(weights.begin(), weights.end());
  trial->module_->Pack(trial->value_, trial->packed_.get());
  return trial;
}

// Chooses the examples once; Advance walks over them.
SentimentEvaluator::SentimentEvaluator(const TrainingConfig& config,
                                       std::shared_ptr<const ReviewData> data,
                                       const EvaluationRequest& options,
                                       std::unique_ptr<Module> module)
    : data_(std::move(data)),
      options_(options),
      module_(std::move(module)),
      batches_(config, data_->tokenizer),
      step_(module_.get(), batches_.words()) {
  const bool bf16 = config.network.precision == NetworkPrecision::kBf16;
  packed_ = module_->MakePacked(bf16 ? Precision::kBF16 : Precision::kF32);
  const std::int64_t all = set().size(), wanted = std::min(all, options_.episodes);
  // Evenly spread over the set, then sorted, so that the sequences of a batch have similar lengths.
  for (std::int64_t i = 0; i < wanted; ++i) samples_.push_back(std::int32_t(i * all / wanted));
  std::ranges::stable_sort(samples_, {}, [this](std::int32_t i) { return set().length(i); });
}

// Evaluates one batch of sequences of similar length.
Evaluator::State SentimentEvaluator::Advance(int) {
  if (next_ == samples_.size() || !status_.ok()) return State::kOver;
  std::vector<std::int32_t> batch;
  for (std::int64_t tokens = 0; next_ < samples_.size(); ++next_) {
    tokens += set().length(samples_[next_]);
    if (!batch.empty() && tokens > kTokensOfSlice) break;
    batch.push_back(samples_[next_]);
  }
  // Sequences of similar length waste no time on padding.
  const TextBatch text = batches_.ForJudging(set(), batch);
  // A batch without labels has no outcome, and would divide by 0.
  if (!text.labels.empty()) {
    const Result<TextOutcome> outcome =
        on_device_ ? on_device_->Judge(text) : step_.Forward({value_, packed_.get()}, text);
    status_ = outcome.status();
    if (outcome.ok() && !std::isfinite(outcome->loss)) {
      status_ = DataLoss(
          "the weights of version {} give a non-finite cross entropy: they are damaged, or "
          "training diverged; use an earlier checkpoint",
          options_.version);
    }
    if (status_.ok()) outcome_ += *outcome;
  }
  return next_ == samples_.size() || !status_.ok() ? State::kOver : State::kBusy;
}

// Accuracy in %, in the fields of an episode's return; minimum and maximum are its Wilson interval.
// Standard deviation of a share p of n reviews: sqrt(p (1 - p) / n).
EvaluationReport SentimentEvaluator::Report() const {
  const double rows = double(std::max<std::int64_t>(1, outcome_.rows));
  const double right = double(outcome_.right) / rows;
  const ConfidenceInterval interval = WilsonInterval(double(outcome_.right), double(outcome_.rows));
  EvaluationReport report{
      .weights_version = options_.version,
      .episodes = std::int64_t(samples_.size()),
      .return_mean = 100 * right,
      .return_std = 100 * std::sqrt(right * (1 - right) / rows),
      .return_min = 100 * interval.low,
      .return_max = 100 * interval.high,
      .length_mean = double(outcome_.tokens) / double(std::max<std::size_t>(1, samples_.size())),
      .loss = outcome_.loss / rows};
  return report;
}

}  // namespace troop
