// Implements the evaluation of weights on texts.

#include "learners/supervised/text_evaluator.h"

#include <algorithm>
#include <cmath>

#include "nn/models/model.h"
#include "nn/models/text_model.h"

namespace troop {
namespace {

constexpr std::int64_t kTokensOfSlice =
    4096;  // bounds the time of one Advance, so that the role keeps its heartbeat

}  // namespace

Result<std::unique_ptr<TextEvaluator>> TextEvaluator::Make(const TrainingConfig& config,
                                                           std::shared_ptr<const ReviewData> data,
                                                           const EvaluationRequest& options,
                                                           std::span<const float> weights) {
  TROOP_ASSIGN_OR_RETURN(std::unique_ptr<Module> module, MakeTextModel(ModelSetupOf(config)));
  if (std::int64_t(weights.size()) != ParameterCount(*module)) {
    return InvalidArgument("{} weights, but the model has {} parameters", weights.size(),
                           ParameterCount(*module));
  }
  std::unique_ptr<TextEvaluator> trial(new TextEvaluator(config, data, options, std::move(module)));
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
TextEvaluator::TextEvaluator(const TrainingConfig& config, std::shared_ptr<const ReviewData> data,
                             const EvaluationRequest& options, std::unique_ptr<Module> module)
    : data_(std::move(data)),
      options_(options),
      problem_(config.model.problem_type),
      seed_(std::uint64_t(config.seed)),
      module_(std::move(module)),
      batches_(config, data_->tokenizer),
      step_(module_.get(), batches_.words(), config.model.problem_type),
      metrics_(config.model.problem_type, OutputsOf(config.model)) {
  const bool bf16 = config.network.precision == NetworkPrecision::kBf16;
  packed_ = module_->MakePacked(bf16 ? Precision::kBF16 : Precision::kF32);
  const std::int64_t all = set().size(), wanted = std::min(all, options_.episodes);
  // Evenly spread over the set, then sorted, so that the sequences of a batch have similar lengths.
  for (std::int64_t i = 0; i < wanted; ++i) samples_.push_back(std::int32_t(i * all / wanted));
  std::ranges::stable_sort(samples_, {}, [this](std::int32_t i) { return set().length(i); });
}

// Evaluates one batch of sequences of similar length.
Evaluator::State TextEvaluator::Advance(int) {
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
  if (text.rows() > 0) {
    const Result<TextOutcome> outcome =
        on_device_ ? on_device_->Judge(text) : step_.Forward({value_, packed_.get()}, text);
    status_ = outcome.status();
    if (outcome.ok() && !std::isfinite(outcome->loss)) {
      status_ = DataLoss(
          "the weights of version {} give a non-finite loss: they are damaged, or "
          "training diverged; use an earlier checkpoint",
          options_.version);
    }
    if (status_.ok()) outcome_ += *outcome;
    // A masked LM has a row per token and as many columns as the vocabulary.
    if (status_.ok() && batches_.words() == 0)
      metrics_.Add(text, on_device_ ? on_device_->logits() : step_.logits());
  }
  return next_ == samples_.size() || !status_.ok() ? State::kOver : State::kBusy;
}

TextScores TextEvaluator::Scores(int resamples) const {
  return metrics_.Compute({.seed = seed_, .resamples = resamples});
}

std::vector<std::pair<std::string, double>> TextEvaluator::Measures() const {
  return TextTrialMeasures(problem_, Scores(0));
}

// A bootstrap that would delay the role's heartbeat is left to `troop eval`.
void TextEvaluator::AddDetails(EvaluationReport* report) const {
  ReportScores(Scores(metrics_.QuickResamples()), report);
}

// Only a regression needs all predictions.
EvaluationReport TextEvaluator::Report() const {
  return TextTrialReport(
      {.problem = problem_,
       .version = options_.version,
       .examples = std::ssize(samples_),
       .outcome = outcome_,
       .scores = problem_ == ProblemType::kRegression ? Scores(0) : TextScores()});
}

}  // namespace troop
