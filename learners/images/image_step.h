#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/buffer.h"
#include "core/base/status.h"
#include "core/tensor/tensor.h"
#include "datasets/images/augmentation.h"
#include "datasets/images/image.h"
#include "nn/module.h"

namespace troop {

// A batch of transformed images with their classes.
struct ImageBatch {
  std::vector<float> pixels;         // [B, height, width, channels]
  std::vector<std::int32_t> labels;  // [B]
  std::vector<float> weights;        // [B], as TextBatch::weights; empty: all 1
  std::vector<DropoutKey> dropout;   // [B]; empty: no dropout
};

// Makes batches of the images of a set.
class ImageCollator {
 public:
  // data: of the shape of the images; must outlive this. REQUIRES: CheckTransform.
  ImageCollator(const ImageTransform& transform, const ImageData* data, std::uint64_t seed);
  // Labels and dropout keys of a batch of the training set, without pixels.
  ImageBatch WithoutPixels(std::span<const std::int32_t> samples, std::int64_t epoch) const;
  // These with pixels of zeros.
  ImageBatch Begin(std::span<const std::int32_t> samples, std::int64_t epoch) const;
  // Makes image `place` of a batch: sample `sample` with its random changes, keyed by its index and
  // the epoch. Thread safe for different places. Errors: those of PixelsOf.
  Status Fill(std::int32_t sample, std::int64_t epoch, std::size_t place, ImageBatch* batch) const;
  // Both: a whole batch.
  Result<ImageBatch> ForTraining(std::span<const std::int32_t> samples, std::int64_t epoch) const;
  // Images of `set` without random changes. Errors: those of PixelsOf.
  Result<ImageBatch> ForJudging(const ImageSet& set, std::span<const std::int32_t> samples) const;
  // [B, height, width, channels] of a batch of B images.
  Shape ShapeOf(std::int64_t images) const;

 private:
  const ImageTransform transform_;
  const ImageData* const data_;
  const std::uint64_t seed_;
};

// Results of a batch, as sums, so that the parts of a batch can be added.
struct ImageOutcome {
  double loss = 0;         // Σ of the images' weighted losses
  std::int64_t rows = 0;   // images
  std::int64_t right = 0;  // images whose class has the largest logit, the first of equal ones
  std::int64_t top5 = 0;   // images whose class has one of the five largest
  ImageOutcome& operator+=(const ImageOutcome& other);
};

// Judges logits, [B, classes] f32, by the labels and weights of a batch. differentiate: replaces
// them by the gradient of scale · Σ loss.
ImageOutcome JudgeImages(const ImageBatch& batch, float scale, bool differentiate,
                         const Tensor& logits);

// The running statistics of a module have no gradient: gradient [P] carries the batch's statistics
// at their places. AddStatistics adds share · statistics [P] there; TakeStatistics moves the sum
// back to statistics [P], and leaves zeros.
void AddStatistics(const Module& module, float share, std::span<const float> statistics,
                   std::span<float> gradient);
void TakeStatistics(const Module& module, std::span<float> gradient, std::span<float> statistics);
// Sums of squares of the gradients of the parameters, in their order: 0 for statistics, or NaN if
// one is not finite.
std::vector<double> SquaresOf(const Module& module, std::span<const float> gradient);

// Forward, cross entropy and backward of an image classifier on the CPU. Owns the memory that a
// pass needs, and grows it to the largest batch. One owner thread.
class ImageStep {
 public:
  explicit ImageStep(const Module* module) : module_(module) {}
  struct Weights {
    std::span<const float> value;  // [P]
    const Packed* packed = nullptr;
  };
  struct Gradient {
    std::span<float> gradient;  // [P], accumulated into
    float scale = 1;            // factor of each image's loss
    GradientWatch* watch = nullptr;
    TensorGroup* replicas = nullptr;  // the ranks of the batch (MakeBatchNorm)
  };
  // Inference, with the running statistics. Errors: kInvalidArgument: the shape does not fit.
  Result<ImageOutcome> Forward(const Weights& weights, const ImageBatch& batch, const Shape& shape);
  // Training: adds the gradient of scale · Σ loss to the trained parameters, and scale · B times
  // the batch's statistics to the places of the running ones, which have no gradient. Errors: as
  // above.
  Result<ImageOutcome> ForwardBackward(const Weights& weights, const ImageBatch& batch,
                                       const Shape& shape, const Gradient& gradient);
  // [B, classes]: of the last Forward.
  std::span<const float> logits() const { return logits_.as<float>(); }

 private:
  Status Prepare(const ImageBatch& batch, const Shape& shape);

  const Module* const module_;
  ConstTensor input_;
  Tensor logits_;
  std::vector<float> statistics_;  // [P], of one pass
  MutableBuffer cache_, workspace_;
  std::size_t cache_bytes_ = 0;  // needed by this batch
};

}  // namespace troop
