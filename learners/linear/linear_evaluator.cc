// Implements the evaluation of linear models.

#include "learners/linear/linear_evaluator.h"

#include <algorithm>
#include <cmath>

#include "nn/arena.h"
#include "nn/sparse/linear_outputs.h"

namespace troop {
namespace {

constexpr int kExamplesOfSlice = 1000;  // a few ms, so that the role keeps its heartbeat

}  // namespace

Result<std::unique_ptr<LinearEvaluator>> LinearEvaluator::Make(
    const TrainingConfig& config, LinearLoss loss, std::shared_ptr<const LinearData> data,
    const EvaluationRequest& request, std::span<const float> weights) {
  const std::int64_t width = data->train.width, classes = std::ssize(data->names);
  const bool single = config.model.problem_type == ProblemType::kSingleLabel;
  // The outputs are those of LinearExamplesOf.
  const std::int64_t outputs = !single ? width : classes == 2 ? 1 : classes;
  const LinearForm form{.features = data->train.rows.width, .outputs = outputs, .loss = loss};
  const std::int64_t count = form.rows() * form.outputs;
  if (std::ssize(weights) != AlignParams(count)) {
    return InvalidArgument("{} weights, but the model has {} by {}", weights.size(), form.rows(),
                           form.outputs);
  }
  // The padding behind the weights is left out.
  std::unique_ptr<LinearEvaluator> trial(new LinearEvaluator(config, form, data, request));
  trial->weights_.assign(weights.begin(), weights.begin() + count);
  return trial;
}

// Examples are evenly spread over the set.
LinearEvaluator::LinearEvaluator(const TrainingConfig& config, const LinearForm& form,
                                 std::shared_ptr<const LinearData> data,
                                 const EvaluationRequest& request)
    : data_(std::move(data)),
      request_(request),
      problem_(config.model.problem_type),
      seed_(std::uint64_t(config.seed)),
      form_(form),
      metrics_(problem_,
               problem_ == ProblemType::kSingleLabel ? std::ssize(data_->names) : form.outputs) {
  const std::int64_t all = set().size(), wanted = std::min(all, request_.episodes);
  for (std::int64_t i = 0; i < wanted; ++i) samples_.push_back(i * all / wanted);
}

// Outputs, logits, loss and measures of one example.
void LinearEvaluator::Judge(std::int64_t i) {
  const SparseRow row = set().rows.row(i);
  std::vector<double> outputs(static_cast<std::size_t>(form_.outputs));
  LinearOutputs(form_, weights_, row, outputs);
  // The metrics read examples as those of text models.
  TextBatch example{.starts = {0, 1}};
  std::vector<float> targets;
  if (problem_ == ProblemType::kSingleLabel) {
    example.labels = {set().labels[std::size_t(i)]};
    targets = ClassTargets(example.labels, std::ssize(data_->names));
  } else {
    const auto width = std::size_t(set().width);
    const auto values = std::span(set().targets).subspan(std::size_t(i) * width, width);
    example.targets.assign(values.begin(), values.end());
    targets = example.targets;
    // 0 and 1 of labels are -1 and 1 to the loss.
    for (float& y : targets) {
      if (problem_ == ProblemType::kMultiLabel) y = y > 0 ? 1.0f : -1.0f;
    }
  }
  std::vector<float> logits;
  AppendLinearLogits(problem_, outputs, &logits);
  metrics_.Add(example, logits);
  outcome_.right += IsLinearRight(problem_, outputs, targets);
  outcome_.loss += LinearLossAndSlopes(form_, targets, outputs);
  // An entry counts as a token in the mean length.
  outcome_.tokens += std::ssize(row.columns);
  ++outcome_.rows;
  ++outcome_.sequences;
}

// A slice, whatever the number of steps.
Evaluator::State LinearEvaluator::Advance(int) {
  for (int i = 0; i < kExamplesOfSlice && next_ < samples_.size() && status_.ok(); ++i, ++next_) {
    Judge(samples_[next_]);
    if (std::isfinite(outcome_.loss)) continue;
    status_ = DataLoss(
        "the weights of version {} give a non-finite loss: they are damaged, or training "
        "diverged; use an earlier checkpoint",
        request_.version);
  }
  return next_ == samples_.size() || !status_.ok() ? State::kOver : State::kBusy;
}

// The order of the examples is fixed, so equal seeds give equal intervals.
TextScores LinearEvaluator::Scores(int resamples) const {
  return metrics_.Compute({.seed = seed_, .resamples = resamples});
}

std::vector<std::pair<std::string, double>> LinearEvaluator::Measures() const {
  return TextTrialMeasures(problem_, Scores(0));
}

// Only a regression needs all predictions.
EvaluationReport LinearEvaluator::Report() const {
  return TextTrialReport(
      {.problem = problem_,
       .version = request_.version,
       .examples = std::ssize(samples_),
       .outcome = outcome_,
       .scores = problem_ == ProblemType::kRegression ? Scores(0) : TextScores()});
}

}  // namespace troop
