// Implements batches of images, and forward, loss and backward of an image classifier.

#include "learners/images/image_step.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "datasets/images/image_source.h"
#include "kernels/optim/optimizer_step.h"
#include "kernels/transformer/layer_norm_gelu.h"

namespace troop {
namespace {

// Number of classes in front of `label`: those with a larger logit, and equal ones before it.
std::int64_t RankOf(std::span<const float> row, std::int32_t label) {
  const float mine = row[std::size_t(label)];
  std::int64_t rank = 0;
  for (std::size_t i = 0; i < row.size(); ++i)
    rank += row[i] > mine || (row[i] == mine && i < std::size_t(label));
  return rank;
}

// Grows by a quarter more than needed, so that slowly growing batches reallocate rarely.
void GrowTo(MutableBuffer* buffer, std::size_t bytes) {
  if (buffer->size() < bytes) *buffer = MutableBuffer(bytes + bytes / 4);
}

}  // namespace

// The transform is copied, since it is small apart from the data.
ImageCollator::ImageCollator(const ImageTransform& transform, const ImageData* data,
                             std::uint64_t seed)
    : transform_(transform), data_(data), seed_(seed) {}

// The crop may be larger or smaller than the image.
Shape ImageCollator::ShapeOf(std::int64_t images) const {
  const auto [height, width] = TransformedSize(transform_, data_->height, data_->width);
  return {images, height, width, data_->channels};
}

ImageBatch ImageCollator::Begin(std::span<const std::int32_t> samples, std::int64_t epoch) const {
  ImageBatch batch = WithoutPixels(samples, epoch);
  batch.pixels.resize(samples.size() * std::size_t(ShapeOf(1).elements()));
  return batch;
}

// The keys have no learner and no batch, so that any mesh sees the same images.
ImageBatch ImageCollator::WithoutPixels(std::span<const std::int32_t> samples,
                                        std::int64_t epoch) const {
  ImageBatch batch;
  for (const std::int32_t sample : samples) {
    batch.labels.push_back(data_->train.labels[std::size_t(sample)]);
    batch.dropout.push_back(MakeDropoutKey(seed_, std::uint64_t(sample), std::uint64_t(epoch)));
  }
  return batch;
}

// Pixels of one image are adjacent in the batch.
Status ImageCollator::Fill(std::int32_t sample, std::int64_t epoch, std::size_t place,
                           ImageBatch* batch) const {
  const auto to = std::size_t(ShapeOf(1).elements());
  std::vector<std::uint8_t> decoded;
  TROOP_ASSIGN_OR_RETURN(const auto pixels, PixelsOf(*data_, data_->train, sample, &decoded));
  const AugmentationKey key{
      .run_seed = seed_, .sample = std::uint64_t(sample), .epoch = std::uint64_t(epoch)};
  AugmentImage(transform_, key, *data_, pixels, std::span(batch->pixels).subspan(place * to, to));
  return Status::Ok();
}

Result<ImageBatch> ImageCollator::ForTraining(std::span<const std::int32_t> samples,
                                              std::int64_t epoch) const {
  ImageBatch batch = Begin(samples, epoch);
  for (std::size_t i = 0; i < samples.size(); ++i)
    TROOP_RETURN_IF_ERROR(Fill(samples[i], epoch, i, &batch));
  return batch;
}

// The centered crop needs no key.
Result<ImageBatch> ImageCollator::ForJudging(const ImageSet& set,
                                             std::span<const std::int32_t> samples) const {
  const auto to = std::size_t(ShapeOf(1).elements());
  ImageBatch batch;
  batch.pixels.resize(samples.size() * to);
  std::vector<std::uint8_t> decoded;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    TROOP_ASSIGN_OR_RETURN(const auto pixels, PixelsOf(*data_, set, samples[i], &decoded));
    NormalizeImage(transform_, *data_, pixels, std::span(batch.pixels).subspan(i * to, to));
    batch.labels.push_back(set.labels[std::size_t(samples[i])]);
  }
  return batch;
}

ImageOutcome& ImageOutcome::operator+=(const ImageOutcome& other) {
  loss += other.loss;
  rows += other.rows;
  right += other.right;
  top5 += other.top5;
  return *this;
}

void AddStatistics(const Module& module, float share, std::span<const float> statistics,
                   std::span<float> gradient) {
  for (const ParamSpec& spec : module.params()) {
    if (spec.trained) continue;
    for (std::int64_t i = spec.offset; i < spec.offset + spec.shape.elements(); ++i)
      gradient[std::size_t(i)] += share * statistics[std::size_t(i)];
  }
}

void TakeStatistics(const Module& module, std::span<float> gradient, std::span<float> statistics) {
  for (const ParamSpec& spec : module.params()) {
    if (spec.trained) continue;
    const auto place =
        gradient.subspan(std::size_t(spec.offset), std::size_t(spec.shape.elements()));
    std::ranges::copy(place, statistics.begin() + spec.offset);
    std::ranges::fill(place, 0.0f);
  }
}

// Statistics that are not finite would damage the running ones.
std::vector<double> SquaresOf(const Module& module, std::span<const float> gradient) {
  static const OptimizerKernels& kernels = OptimizerKernelsFor(BestCpuLevel());
  std::vector<double> squares;
  for (const ParamSpec& spec : module.params()) {
    const auto part =
        gradient.subspan(std::size_t(spec.offset), std::size_t(spec.shape.elements()));
    const bool finite =
        spec.trained || std::ranges::all_of(part, [](float x) { return bool(std::isfinite(x)); });
    squares.push_back(spec.trained ? kernels.sum_squares(std::int64_t(part.size()), part.data())
                      : finite     ? 0
                                   : std::numeric_limits<double>::quiet_NaN());
  }
  return squares;
}

// Plans for the batch's size, and grows the buffers to the plan.
Status ImageStep::Prepare(const ImageBatch& batch, const Shape& shape) {
  TROOP_CHECK(std::int64_t(batch.pixels.size()) == shape.elements(), "{} pixels for {}",
              batch.pixels.size(), TensorSpec{DType::kF32, shape}.ToString());
  input_ = ConstTensor::Borrow(std::as_bytes(std::span(batch.pixels)), {DType::kF32, shape});
  const TensorSpec in = input_.spec();
  TROOP_ASSIGN_OR_RETURN(const Plan plan, module_->MakePlan({&in, 1}));
  if (logits_.spec() != plan.out[0])
    logits_ = Tensor::Uninitialized(plan.out[0].dtype, plan.out[0].shape);
  GrowTo(&workspace_, plan.workspace_bytes);
  cache_bytes_ = plan.cache_bytes;
  return Status::Ok();
}

// A NaN logit counts as wrong.
ImageOutcome JudgeImages(const ImageBatch& batch, float scale, bool differentiate,
                         const Tensor& logits) {
  ImageOutcome outcome{.rows = logits.dim(0)};
  const std::int64_t classes = logits.dim(1);
  const TransformerKernels& kernels = TransformerKernelsFor(BestCpuLevel());
  for (std::int64_t i = 0; i < outcome.rows; ++i) {
    float* const row = logits.data<float>() + i * classes;
    const std::int32_t label = batch.labels[std::size_t(i)];
    const float weight = batch.weights.empty() ? 1 : batch.weights[std::size_t(i)];
    const std::int64_t rank = RankOf({row, std::size_t(classes)}, label);
    float loss = 0;
    kernels.cross_entropy(1, classes, row, &label, scale * weight, &loss,
                          differentiate ? row : nullptr);
    outcome.loss += double(weight) * double(loss);
    outcome.right += rank == 0 && std::isfinite(loss);
    outcome.top5 += rank < 5 && std::isfinite(loss);
  }
  return outcome;
}

// No cache, which selects the running statistics. The loss is not scaled.
Result<ImageOutcome> ImageStep::Forward(const Weights& weights, const ImageBatch& batch,
                                        const Shape& shape) {
  TROOP_RETURN_IF_ERROR(Prepare(batch, shape));
  const StepContext context{weights.value, weights.packed, {}, workspace_.bytes()};
  module_->Forward(context, {&input_, 1}, {&logits_, 1}, {});
  return JudgeImages(batch, 1, false, logits_);
}

// The statistics are complete before the backward pass, which may send parts of the gradient.
Result<ImageOutcome> ImageStep::ForwardBackward(const Weights& weights, const ImageBatch& batch,
                                                const Shape& shape, const Gradient& gradient) {
  TROOP_RETURN_IF_ERROR(Prepare(batch, shape));
  GrowTo(&cache_, cache_bytes_);
  statistics_.resize(gradient.gradient.size());
  StepContext context{weights.value, weights.packed, {}, workspace_.bytes()};
  context.statistics = statistics_;
  context.dropout = batch.dropout;
  context.replicas = gradient.replicas;
  const Cache cache = cache_.bytes().first(cache_bytes_);
  module_->Forward(context, {&input_, 1}, {&logits_, 1}, cache);
  const ImageOutcome outcome = JudgeImages(batch, gradient.scale, true, logits_);
  // Several micro-batches add up to the weighted mean of their statistics.
  AddStatistics(*module_, gradient.scale * float(outcome.rows), statistics_, gradient.gradient);
  context.gradient = gradient.gradient;
  context.accumulate = true;
  context.watch = gradient.watch;
  const ConstTensor dout = logits_;
  module_->Backward(context, {&input_, 1}, {&dout, 1}, cache, {});
  return outcome;
}

}  // namespace troop
