// Implements supervised training of image classifiers on the CPU.

#include "learners/images/image_classification.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/failpoint.h"
#include "core/base/time.h"
#include "kernels/optim/optimizer_step.h"
#include "learners/images/image_dataset.h"
#include "learners/images/image_loader.h"
#include "learners/images/image_step.h"
#include "learners/nonfinite_report.h"
#include "learners/supervised/class_weights.h"
#include "learners/supervised/supervised.h"
#include "learners/train_state.h"
#include "nn/models/text_model.h"
#include "nn/parallel/tensor_parallel.h"

namespace troop {
namespace {

// The gradient is the sum over micro-batches; TrainState makes the step.
class ImageClassification final : public Algorithm, public BatchPartition, public CostReporting {
 public:
  // Made by the factory, so that the constructor cannot fail.
  struct Parts {
    std::shared_ptr<const ImageData> data;
    ImageTransform transform;
    std::unique_ptr<Module> module;
    std::unique_ptr<TrainState> trained;
  };
  ImageClassification(const TrainingConfig& config, Parts parts);

  BatchPartition* batch_partition() override { return this; }
  CostReporting* cost_reporting() override { return this; }
  void SetRank(int rank, int ranks) override;
  bool needs_group() const override { return config_.model.sync_batch_norm; }
  void SetGroup(Collective* group) override;
  Status group_status() const override { return group_ ? group_->status() : Status::Ok(); }
  void SetTrainingProgress(const TrainingProgress& progress) override { progress_ = progress; }

  Result<LossReport> ComputeGradient(const SampleBatch& batch, std::span<float> priority,
                                     GradientWatch* watch) override;
  double GradientNorm() override;
  void ApplyGradient(double, double norm) override;
  UpdateCost TakeCost() override { return std::exchange(cost_, UpdateCost{}); }
  void CountAllReduce(const AllReduceStats& stats) override { cost_.Count(stats); }

  // The rest forwards to TrainState.
  std::span<float> gradient() override { return trained_->gradient(); }
  float LearningRate(double) const override { return trained_->LearningRate(Progress()); }
  std::uint64_t updates() const override { return trained_->updates(); }
  std::span<const float> value() const override { return trained_->value(); }
  TensorFile State() const override { return trained_->State(); }
  Status SetState(const TensorFile& state) override { return trained_->SetState(state); }
  Status RollBack(const TensorFile& state) override { return trained_->RollBack(state); }
  Status CheckFinite() const override { return trained_->CheckFinite(); }

 private:
  double Progress() const;
  ImageShare ShareOf(std::uint64_t number);
  Result<ImageLoader::Loaded> TakeImages();
  Result<ImageOutcome> ComputeParts(GradientWatch* watch);
  Status Refuse(const std::string& what) const;
  // Calls f(parameter's part of `values` [P]) for each parameter that is, or is not, trained.
  template <class F>
  void ForEach(bool trained, std::span<float> values, F f) const {
    for (const ParamSpec& spec : parts_.module->params()) {
      if (spec.trained == trained)
        f(values.subspan(std::size_t(spec.offset), std::size_t(spec.shape.elements())));
    }
  }

  const TrainingConfig config_;
  const Parts parts_;
  TrainState* const trained_ = parts_.trained.get();
  const std::vector<std::int32_t> lengths_;  // all 1: any order of the images is as good
  BatchSchedule order_;
  const ImageCollator batches_;
  ImageLoader loader_;
  ImageStep step_;
  std::vector<float> class_weights_;  // empty: none
  std::vector<float> statistics_;     // [P], of the update; 0 at trained parameters
  int rank_ = 0, ranks_ = 1;
  Collective* group_ = nullptr;               // of the ranks, with model.sync_batch_norm
  std::optional<TensorGroup> replicas_;       // over group_
  std::optional<TrainingProgress> progress_;  // nullopt: update n uses batch n
  const SystemClock clock_;                   // only for the report; results do not depend on it
  UpdateCost cost_;
};

// Class weights are those of the training images, without the validation and test sets.
ImageClassification::ImageClassification(const TrainingConfig& config, Parts parts)
    : config_(config),
      parts_(std::move(parts)),
      lengths_(std::size_t(parts_.data->train.size()), 1),
      order_(config, lengths_),
      batches_(parts_.transform, parts_.data.get(), std::uint64_t(config.seed)),
      loader_(
          &batches_, [this](std::uint64_t number) { return ShareOf(number); },
          int(config.data.image_threads)),
      step_(parts_.module.get()),
      statistics_(trained_->value().size()) {
  if (config.learner.class_weights == ClassWeights::kBalanced)
    class_weights_ = BalancedClassWeights(parts_.data->train.labels);
}

// Progress of the current update. A job of several updates has one progress value; this is exact.
double ImageClassification::Progress() const {
  if (progress_) return progress_->progress;
  return double(updates()) / double(std::max<std::int64_t>(1, config_.run.max_updates));
}

// Images made ahead are those of another share.
void ImageClassification::SetRank(int rank, int ranks) {
  if (rank != rank_ || ranks != ranks_) loader_.Clear();
  rank_ = rank, ranks_ = ranks;
}

void ImageClassification::SetGroup(Collective* group) {
  group_ = group;
  replicas_.reset();
  if (group != nullptr) replicas_.emplace(group, &clock_);
}

// Every learner computes the whole order, and takes its part. Unequal shares apply only while all
// learners are present, as for texts.
ImageShare ImageClassification::ShareOf(std::uint64_t number) {
  const BatchSchedule::Batch batch = order_.BatchOf(number);
  const std::vector<double>& given = config_.mesh.batch_shares;
  const auto shares =
      given.size() == std::size_t(ranks_) ? given : std::vector<double>(std::size_t(ranks_), 1.0);
  ImageShare share{.number = number, .epoch = batch.epoch, .images = std::ssize(batch.samples)};
  std::vector<std::vector<std::int32_t>> parts = SplitBatch(batch.samples, lengths_, shares);
  // A learner without images could not take part in the exchange of statistics, so all compute all.
  share.whole = needs_group() && std::ranges::any_of(parts, [](auto& p) { return p.empty(); });
  if (share.whole) {
    share.samples.assign(batch.samples.begin(), batch.samples.end());
  } else {
    share.samples = std::move(parts[std::size_t(rank_)]);
  }
  for (const std::int32_t i : batch.samples)
    share.labels.push_back(parts_.data->train.labels[std::size_t(i)]);
  // Micro-batches bound the memory of activations, which grows with the images of a pass.
  const std::int64_t asked = config_.learner.micro_batch_size;
  share.micro = std::max<std::size_t>(1, asked > 0 ? std::size_t(asked) : share.samples.size());
  return share;
}

// The SampleBatch is ignored: the samples follow from updates().
Result<LossReport> ImageClassification::ComputeGradient(const SampleBatch&,
                                                        std::span<float> priority,
                                                        GradientWatch* watch) {
  ++cost_.gradients;
  TROOP_ASSIGN_OR_RETURN(const ImageOutcome outcome, ComputeParts(watch));
  cost_.sequences += double(outcome.rows);
  if (!std::isfinite(outcome.loss)) return Refuse(fmt::format("the loss is {}", outcome.loss));
  const double norm = GradientNorm();
  if (!std::isfinite(norm)) return Refuse(fmt::format("the gradient norm is {}", norm));
  std::ranges::fill(priority, 0.0f);
  // A learner may have no image of a small batch.
  const double rows = double(std::max<std::int64_t>(1, outcome.rows));
  return LossReport{.loss = outcome.loss / rows,
                    .gradient_norm = norm,
                    .rows = double(outcome.rows),
                    .accuracy = double(outcome.right) / rows,
                    .sequences = outcome.rows};
}

// Without its images this learner cannot take part in the exchange of statistics: it ends the
// group, in which the others wait.
Result<ImageLoader::Loaded> ImageClassification::TakeImages() {
  Result<ImageLoader::Loaded> loaded = loader_.Take(progress_ ? progress_->batches : updates());
  if (!loaded.ok() && group_ != nullptr) group_->Abort(loaded.status());
  return loaded;
}

// Only the last micro-batch notifies `watch`, since the gradient is final then.
Result<ImageOutcome> ImageClassification::ComputeParts(GradientWatch* watch) {
  Time begin = clock_.Now();
  TROOP_ASSIGN_OR_RETURN(ImageLoader::Loaded loaded, TakeImages());
  const ImageShare& share = loaded.share;
  const ImageStep::Weights weights{trained_->value(), trained_->packed_value()};
  // The mean over learners of the scaled sums is the mean over all images of the batch.
  ImageStep::Gradient gradient{.gradient = trained_->gradient(),
                               .scale = float((share.whole ? 1.0 : ranks_) / double(share.images))};
  if (replicas_ && !share.whole) gradient.replicas = &*replicas_;
  const double waited = replicas_ ? ToSeconds(replicas_->waited()) : 0;
  std::ranges::fill(gradient.gradient, 0.0f);
  ImageOutcome sum;
  for (ImageBatch& images : loaded.parts) {
    // The mean weight is that of the whole batch.
    images.weights = RowWeights(class_weights_, share.labels, images.labels);
    const Time computes = clock_.Now();
    cost_.data_s += ToSeconds(computes - begin);
    gradient.watch = &images == &loaded.parts.back() ? watch : nullptr;
    TROOP_ASSIGN_OR_RETURN(
        const ImageOutcome outcome,
        step_.ForwardBackward(weights, images, batches_.ShapeOf(std::ssize(images.labels)),
                              gradient));
    sum += outcome;
    begin = clock_.Now();
    cost_.compute_s += ToSeconds(begin - computes);
  }
  if (replicas_) {
    TROOP_RETURN_IF_ERROR(replicas_->status());
    const double all = ToSeconds(replicas_->waited());
    cost_.tensor_s += all - waited, cost_.compute_s -= all - waited;
  }
  // Failpoint of the divergence tests.
  if (const auto bad = InjectedValue(Failpoint::kLearnerGradient)) gradient.gradient[0] = *bad;
  return sum;
}

// The norm is that of the trained parameters. Statistics that are not finite would damage the
// running ones, so they make the norm NaN, and all learners skip the update.
double ImageClassification::GradientNorm() {
  static const OptimizerKernels& kernels = OptimizerKernelsFor(BestCpuLevel());
  double squares = 0;
  ForEach(true, gradient(), [&](std::span<const float> part) {
    squares += kernels.sum_squares(std::int64_t(part.size()), part.data());
  });
  bool finite = true;
  ForEach(false, gradient(), [&](std::span<const float> part) {
    for (const float x : part) finite &= std::isfinite(x);
  });
  return finite ? std::sqrt(squares) : std::numeric_limits<double>::quiet_NaN();
}

// The optimizer sees zeros at the places of the statistics; TrainState hands them to the module.
void ImageClassification::ApplyGradient(double, double norm) {
  const Time begin = clock_.Now();
  for (const ParamSpec& spec : parts_.module->params()) {
    if (spec.trained) continue;
    const auto place =
        gradient().subspan(std::size_t(spec.offset), std::size_t(spec.shape.elements()));
    std::ranges::copy(place, statistics_.begin() + spec.offset);
    std::ranges::fill(place, 0.0f);
  }
  const ConstTensor statistics = ConstTensor::Borrow(
      std::as_bytes(std::span(statistics_)), {DType::kF32, {std::int64_t(statistics_.size())}});
  // Only the places of running statistics are read.
  trained_->Step(Progress(), norm, statistics);
  cost_.step_s += ToSeconds(clock_.Now() - begin);
}

// Names the origin: a weight, or else a parameter's gradient.
Status ImageClassification::Refuse(const std::string& what) const {
  std::string origin = CheckFinite().message();
  if (origin.empty()) {
    const std::string parameter = FindNonFiniteParameter(*parts_.module, trained_->gradient());
    if (!parameter.empty()) origin = "the gradient of " + parameter;
  }
  return DataLoss("update {}: {}{}{}; the batch was skipped", updates() + 1, what,
                  origin.empty() ? "" : ": ", origin);
}

}  // namespace

Result<std::unique_ptr<Algorithm>> MakeImageClassification(const TrainingConfig& config,
                                                           std::shared_ptr<const ImageData> data,
                                                           const ImageTransform& transform) {
  TROOP_ASSIGN_OR_RETURN(auto module, MakeTextModel(ModelSetupOf(config)));
  TROOP_ASSIGN_OR_RETURN(auto trained, MakeTextTrainState(config, module.get()));
  if (!config.model.pretrained.empty()) {
    std::vector<float> value(trained->value().size());
    TROOP_RETURN_IF_ERROR(FirstWeights(config, *module, value));
    trained->Begin(value);
  }
  return std::unique_ptr<Algorithm>(
      new ImageClassification(config, {.data = std::move(data),
                                       .transform = transform,
                                       .module = std::move(module),
                                       .trained = std::move(trained)}));
}

// Each learner holds all images: the batches of other ranks follow from the same order.
Result<std::unique_ptr<Algorithm>> MakeImageClassification(const TrainingConfig& config) {
  TROOP_ASSIGN_OR_RETURN(const auto data, LoadImageData(config));
  TROOP_ASSIGN_OR_RETURN(const ImageTransform transform, TransformOf(config, *data));
  return MakeImageClassification(config, data, transform);
}

}  // namespace troop
