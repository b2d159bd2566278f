// Implements the answers of an image classifier for image files.

#include "learners/images/image_predictor.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "datasets/images/image_file.h"
#include "datasets/images/image_resize.h"
#include "learners/images/image_dataset.h"
#include "nn/models/model.h"
#include "nn/models/text_model.h"

namespace troop {

// The weights come from a file, so their number is checked.
Result<std::unique_ptr<ImagePredictor>> ImagePredictor::Make(const TrainingConfig& config,
                                                             std::span<const float> weights) {
  TROOP_ASSIGN_OR_RETURN(auto module, MakeTextModel(ModelSetupOf(config)));
  if (std::int64_t(weights.size()) != ParameterCount(*module)) {
    return DataLoss("{} weights, but the model has {} parameters", weights.size(),
                    ParameterCount(*module));
  }
  return std::unique_ptr<ImagePredictor>(new ImagePredictor(config, std::move(module), weights));
}

// Predictions are computed in f32. The packed form is made once for all images.
ImagePredictor::ImagePredictor(const TrainingConfig& config, std::unique_ptr<Module> module,
                               std::span<const float> weights)
    : config_(config),
      module_(std::move(module)),
      value_(weights.begin(), weights.end()),
      packed_(module_->MakePacked(Precision::kF32)),
      step_(module_.get()) {
  module_->Pack(value_, packed_.get());
}

// Steps: pixels in the form of the data set, the transform without randomness, softmax.
Result<std::vector<Likely>> ImagePredictor::Predict(std::string_view file) {
  const DataConfig& d = config_.data;
  const ModelConfig& m = config_.model;
  TROOP_ASSIGN_OR_RETURN(Image image, DecodeImage(file));
  image = ConvertChannels(std::move(image), m.image_channels);
  if (d.image_resize != ResizeRule::kNone)
    image = FitImage(std::move(image), d.image_resize, d.image_height, d.image_width);
  // Only the shape is needed: no set of images, and no noise, whose components come from one.
  ImageData shape{.height = image.height, .width = image.width, .channels = image.channels};
  TrainingConfig quiet = config_;
  quiet.data.image_color_noise = 0;
  TROOP_ASSIGN_OR_RETURN(const ImageTransform transform, TransformOf(quiet, shape));
  const auto [height, width] = TransformedSize(transform, image.height, image.width);
  if (height != m.image_height || width != m.image_width) {
    return InvalidArgument(
        "the image has {} x {} pixels, must have {} x {}, as the training images; resize it, or "
        "train with data.image_resize",
        height, width, m.image_height, m.image_width);
  }
  // The collator reads images from a set; the label is not used.
  const ImageSet one{.pixels = std::move(image.pixels), .labels = {0}};
  const ImageCollator collator(transform, &shape, 0);
  const std::int32_t first = 0;
  TROOP_ASSIGN_OR_RETURN(const ImageBatch batch, collator.ForJudging(one, {&first, 1}));
  TROOP_RETURN_IF_ERROR(
      step_.Forward({value_, packed_.get()}, batch, collator.ShapeOf(1)).status());
  // Differences to the largest logit cannot overflow.
  const std::span<const float> logits = step_.logits();
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  // Each class gets its unnormalized probability first.
  std::vector<Likely> classes;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    classes.push_back({m.labels[i], std::exp(double(logits[i]) - largest)});
    sum += classes.back().probability;
  }
  // Equal classes keep the order of their ids.
  for (Likely& one_class : classes) one_class.probability /= sum;
  std::ranges::stable_sort(classes, std::ranges::greater{}, &Likely::probability);
  return classes;
}

}  // namespace troop
