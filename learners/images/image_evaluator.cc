// Implements the evaluation of weights on images.

#include "learners/images/image_evaluator.h"

#include <algorithm>
#include <cmath>

#include "core/metrics/wilson_interval.h"
#include "learners/images/image_dataset.h"
#include "nn/models/model.h"
#include "nn/models/text_model.h"

namespace troop {
namespace {

// Numbers of a batch's images, which bounds the time of one Advance, so that the role keeps its
// heartbeat: 21 images of 224 x 224 in color.
constexpr std::int64_t kPixelsOfSlice = std::int64_t{1} << 22;
// Small images gain nothing from larger batches.
constexpr std::int64_t kImagesOfSlice = 256;
constexpr char kTop5Name[] = "top5_accuracy";  // a measure that texts do not have

}  // namespace

// The weights may come from another process or a file, so their number is checked.
Result<std::unique_ptr<ImageEvaluator>> ImageEvaluator::Make(const TrainingConfig& config,
                                                             std::shared_ptr<const ImageData> data,
                                                             const EvaluationRequest& options,
                                                             std::span<const float> weights) {
  TROOP_ASSIGN_OR_RETURN(const ImageTransform transform, TransformOf(config, *data));
  TROOP_ASSIGN_OR_RETURN(std::unique_ptr<Module> module, MakeTextModel(ModelSetupOf(config)));
  if (std::int64_t(weights.size()) != ParameterCount(*module)) {
    return InvalidArgument("{} weights, but the model has {} parameters", weights.size(),
                           ParameterCount(*module));
  }
  std::unique_ptr<ImageEvaluator> trial(
      new ImageEvaluator(config, std::move(data), options, std::move(module), transform));
  trial->value_.assign(weights.begin(), weights.end());
  trial->module_->Pack(trial->value_, trial->packed_.get());
  return trial;
}

// Evenly spread over the set, since files are sorted by class.
ImageEvaluator::ImageEvaluator(const TrainingConfig& config, std::shared_ptr<const ImageData> data,
                               const EvaluationRequest& options, std::unique_ptr<Module> module,
                               const ImageTransform& transform)
    : data_(std::move(data)),
      options_(options),
      seed_(std::uint64_t(config.seed)),
      module_(std::move(module)),
      batches_(transform, data_.get(), seed_),
      step_(module_.get()),
      packed_(module_->MakePacked(Precision::kF32)),
      metrics_(ProblemType::kSingleLabel, OutputsOf(config.model)) {
  const std::int64_t all = set().size(), wanted = std::min(all, options_.episodes);
  for (std::int64_t i = 0; i < wanted; ++i) samples_.push_back(std::int32_t(i * all / wanted));
}

// One batch, whose size follows from that of an image.
Evaluator::State ImageEvaluator::Advance(int) {
  if (next_ == samples_.size() || !status_.ok()) return State::kOver;
  const std::int64_t fit =
      std::clamp<std::int64_t>(kPixelsOfSlice / batches_.ShapeOf(1).elements(), 1, kImagesOfSlice);
  const std::size_t count = std::min(std::size_t(fit), samples_.size() - next_);
  const Result<ImageBatch> made =
      batches_.ForJudging(set(), std::span(samples_).subspan(next_, count));
  status_ = made.status();
  if (!status_.ok()) return State::kOver;
  const ImageBatch& batch = *made;
  next_ += count;
  const Result<ImageOutcome> outcome =
      step_.Forward({value_, packed_.get()}, batch, batches_.ShapeOf(std::int64_t(count)));
  status_ = outcome.status();
  if (outcome.ok() && !std::isfinite(outcome->loss)) {
    status_ = DataLoss(
        "the weights of version {} give a non-finite loss: they are damaged, or training diverged; "
        "use an earlier checkpoint",
        options_.version);
  }
  if (!status_.ok()) return State::kOver;
  outcome_ += *outcome;
  metrics_.Add({.labels = batch.labels}, step_.logits());
  return next_ == samples_.size() ? State::kOver : State::kBusy;
}

// Classes of images are measured as those of texts.
TextScores ImageEvaluator::Scores(int resamples) const {
  return metrics_.Compute({.seed = seed_, .resamples = resamples});
}

double ImageEvaluator::top5() const {
  return double(outcome_.top5) / double(std::max<std::int64_t>(1, outcome_.rows));
}

// An undefined measure is NaN, as for texts.
std::vector<std::pair<std::string, double>> ImageEvaluator::Measures() const {
  std::vector<std::pair<std::string, double>> measures;
  const TextScores scores = Scores(0);
  for (const std::string_view name : MetricNames(ProblemType::kSingleLabel)) {
    const TextMetric* const metric = scores.Find(name);
    measures.emplace_back(name, metric == nullptr ? NAN : metric->value);
  }
  measures.emplace_back(kTop5Name, top5());
  return measures;
}

// The top-5 accuracy is a proportion, too, but has no bootstrap.
void ImageEvaluator::AddDetails(EvaluationReport* report) const {
  ReportScores(Scores(metrics_.QuickResamples()), report);
  for (EvaluationMeasure& measure : report->measures) {
    if (measure.name != kTop5Name) continue;
    const auto [low, high] = WilsonInterval(double(outcome_.top5), double(outcome_.rows));
    measure.low = low;
    measure.high = high;
  }
}

// Accuracy in %, in the fields of an episode's return; minimum and maximum are its Wilson interval.
// Standard deviation of a share p of n images: sqrt(p (1 - p) / n).
EvaluationReport ImageEvaluator::Report() const {
  const double rows = double(std::max<std::int64_t>(1, outcome_.rows));
  const double right = double(outcome_.right) / rows;
  const ConfidenceInterval interval = WilsonInterval(double(outcome_.right), double(outcome_.rows));
  return {.weights_version = options_.version,
          .episodes = std::int64_t(samples_.size()),
          .return_mean = 100 * right,
          .return_std = 100 * std::sqrt(right * (1 - right) / rows),
          .return_min = 100 * interval.low,
          .return_max = 100 * interval.high,
          .loss = outcome_.loss / rows};
}

}  // namespace troop
