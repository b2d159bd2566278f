#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "learners/images/image_step.h"
#include "learners/supervised/text_predictor.h"
#include "learners/training_config.h"

namespace troop {

// Answers of a trained image classifier for image files. One owner thread.
class ImagePredictor {
 public:
  // config: of the run, resolved. Errors: those of MakeTextModel; kDataLoss: weights of another
  // size.
  static Result<std::unique_ptr<ImagePredictor>> Make(const TrainingConfig& config,
                                                      std::span<const float> weights);
  // Probabilities of all classes of a PNG or JPEG file, the most probable first. The image gets the
  // form of the run's images: channels, data.image_resize, the centered crop. Errors: those of
  // DecodeImage; kInvalidArgument: another size than the model's.
  Result<std::vector<Likely>> Predict(std::string_view file);

 private:
  ImagePredictor(const TrainingConfig& config, std::unique_ptr<Module> module,
                 std::span<const float> weights);

  const TrainingConfig config_;
  const std::unique_ptr<Module> module_;
  const std::vector<float> value_;  // [P]
  const std::unique_ptr<Packed> packed_;
  ImageStep step_;
};

}  // namespace troop
