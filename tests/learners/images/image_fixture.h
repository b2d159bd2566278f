#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/philox.h"
#include "datasets/images/image.h"
#include "learners/training_config.h"

// Small random images, and a config that trains on them.
namespace troop::test {

inline constexpr std::int64_t kHeight = 6, kWidth = 5, kClasses = 6;

// Gray images whose classes come in turn; the validation set is the test set.
inline std::shared_ptr<ImageData> RandomImages(std::int64_t train, std::int64_t test) {
  auto data = std::make_shared<ImageData>();
  data->height = kHeight, data->width = kWidth, data->channels = 1;
  for (std::int64_t i = 0; i < kClasses; ++i) data->classes.push_back("c" + std::to_string(i));
  // The pixels have no pattern: only a model that remembers them learns the classes.
  Rng rng({.run_seed = 5, .purpose = Purpose::kTest});
  const auto fill = [&](std::int64_t count, ImageSet* set) {
    for (std::int64_t i = 0; i < count; ++i) set->labels.push_back(std::int32_t(i % kClasses));
    for (std::int64_t i = 0; i < count * data->elements(); ++i)
      set->pixels.push_back(std::uint8_t(rng.Below(256)));
  };
  fill(train, &data->train);
  fill(test, &data->test);
  data->validation = data->test;
  return data;
}

// One batch of 24 images an epoch, by plain gradient descent.
inline TrainingConfig ImageConfig() {
  TrainingConfig config;
  config.learner.algorithm = AlgorithmKind::kClassifier;
  config.learner.batch_size = 24;
  config.learner.max_grad_norm = 0;
  config.run.max_updates = 1000;
  config.data.image_threads = 0;
  config.optimizer.type = OptimizerType::kSgd;
  config.optimizer.learning_rate = 0.1;
  config.model.architecture = ModelArchitecture::kCnn;
  config.model.image_height = kHeight;
  config.model.image_width = kWidth;
  config.model.image_channels = 1;
  for (std::int64_t i = 0; i < kClasses; ++i)
    config.model.labels.push_back("c" + std::to_string(i));
  return config;
}

}  // namespace troop::test
