// Implements supervised training of image classifiers on the CPU.

#include "learners/images/image_classification.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/failpoint.h"
#include "core/base/time.h"
#include "learners/images/image_dataset.h"
#include "learners/images/image_loader.h"
#include "learners/images/image_share.h"
#include "learners/images/image_step.h"
#include "learners/images/pipelined_classification.h"
#include "learners/nonfinite_report.h"
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
  // Images made ahead are those of another share.
  void SetRank(int rank, int ranks) override {
    if (share_.SetRank(rank, ranks)) loader_.Clear();
  }
  bool needs_group() const override { return config_.model.sync_batch_norm; }
  void SetGroup(Collective* group) override;
  Status group_status() const override { return group_ ? group_->status() : Status::Ok(); }
  void SetTrainingProgress(const TrainingProgress& progress) override {
    share_.SetTrainingProgress(progress);
  }

  Result<LossReport> ComputeGradient(const SampleBatch& batch, std::span<float> priority,
                                     GradientWatch* watch) override;
  double GradientNorm() override;
  void ApplyGradient(double, double norm) override;
  UpdateCost TakeCost() override { return std::exchange(cost_, UpdateCost{}); }
  void CountAllReduce(const AllReduceStats& stats) override { cost_.Count(stats); }

  // The rest forwards to TrainState.
  std::span<float> gradient() override { return trained_->gradient(); }
  float LearningRate(double) const override {
    return trained_->LearningRate(share_.Progress(updates()));
  }
  std::uint64_t updates() const override { return trained_->updates(); }
  std::span<const float> value() const override { return trained_->value(); }
  TensorFile State() const override { return trained_->State(); }
  Status SetState(const TensorFile& state) override { return trained_->SetState(state); }
  Status RollBack(const TensorFile& state) override { return trained_->RollBack(state); }
  Status CheckFinite() const override { return trained_->CheckFinite(); }

 private:
  ImageWork WorkOf(std::uint64_t number);
  Result<ImageLoader::Loaded> TakeImages();
  Result<ImageOutcome> ComputeParts(GradientWatch* watch);
  Status Refuse(const std::string& what) const;

  const TrainingConfig config_;
  const Parts parts_;
  TrainState* const trained_ = parts_.trained.get();
  ImageShare share_;
  const ImageCollator batches_;
  ImageLoader loader_;
  ImageStep step_;
  std::vector<float> statistics_;        // [P], of the update; 0 at trained parameters
  Collective* group_ = nullptr;          // all ranks, with model.sync_batch_norm
  std::optional<TensorGroup> replicas_;  // over group_
  const SystemClock clock_;              // only for the report; results do not depend on it
  UpdateCost cost_;
};

ImageClassification::ImageClassification(const TrainingConfig& config, Parts parts)
    : config_(config),
      parts_(std::move(parts)),
      share_(config, parts_.data),
      batches_(parts_.transform, parts_.data.get(), std::uint64_t(config.seed)),
      loader_(
          &batches_, [this](std::uint64_t number) { return WorkOf(number); },
          int(config.data.image_threads)),
      step_(parts_.module.get()),
      statistics_(trained_->value().size()) {}

void ImageClassification::SetGroup(Collective* group) {
  group_ = group;
  replicas_.reset();
  if (group != nullptr) replicas_.emplace(group, &clock_);
}

// Micro-batches bound the memory of activations, which grows with the images of a pass.
ImageWork ImageClassification::WorkOf(std::uint64_t number) {
  ImageWork work{.number = number, .part = share_.PartOf(number)};
  const std::int64_t asked = config_.learner.micro_batch_size;
  work.micro = std::max<std::size_t>(1, asked > 0 ? std::size_t(asked) : work.part.samples.size());
  return work;
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
  Result<ImageLoader::Loaded> loaded = loader_.Take(share_.BatchNumber(updates()));
  if (!loaded.ok() && group_ != nullptr) group_->Abort(loaded.status());
  return loaded;
}

// Only the last micro-batch notifies `watch`, since the gradient is final then.
Result<ImageOutcome> ImageClassification::ComputeParts(GradientWatch* watch) {
  Time begin = clock_.Now();
  TROOP_ASSIGN_OR_RETURN(ImageLoader::Loaded loaded, TakeImages());
  const ImageShare::Part& part = loaded.work.part;
  const ImageStep::Weights weights{trained_->value(), trained_->packed_value()};
  ImageStep::Gradient gradient{.gradient = trained_->gradient(), .scale = part.scale};
  if (replicas_ && !part.whole) gradient.replicas = &*replicas_;
  const double waited = replicas_ ? ToSeconds(replicas_->waited()) : 0;
  std::ranges::fill(gradient.gradient, 0.0f);
  ImageOutcome sum;
  for (ImageBatch& images : loaded.parts) {
    images.weights = share_.WeightsOf(part, images.labels);
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

// Statistics that are not finite make the norm NaN, so that all learners skip the update.
double ImageClassification::GradientNorm() {
  double squares = 0;
  for (const double x : SquaresOf(*parts_.module, gradient())) squares += x;
  return std::sqrt(squares);
}

// The optimizer sees zeros at the places of the statistics; TrainState hands them to the module.
void ImageClassification::ApplyGradient(double, double norm) {
  const Time begin = clock_.Now();
  TakeStatistics(*parts_.module, gradient(), statistics_);
  const ConstTensor statistics = ConstTensor::Borrow(
      std::as_bytes(std::span(statistics_)), {DType::kF32, {std::int64_t(statistics_.size())}});
  // Only the places of running statistics are read.
  trained_->Step(share_.Progress(updates()), norm, statistics);
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
Result<std::unique_ptr<Algorithm>> MakeImageClassification(const TrainingConfig& config,
                                                           const TensorParallelRank& tensor) {
  TROOP_ASSIGN_OR_RETURN(const auto data, LoadImageData(config));
  TROOP_ASSIGN_OR_RETURN(const ImageTransform transform, TransformOf(config, *data));
  if (tensor.ranks > 1) return MakePipelinedClassification(config, data, transform, tensor);
  return MakeImageClassification(config, data, transform);
}

}  // namespace troop
