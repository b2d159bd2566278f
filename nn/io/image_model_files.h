#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/base/status.h"
#include "core/storage/storage.h"
#include "nn/model_config.h"
#include "nn/module.h"

// An image classifier as a folder: model.safetensors with the names and layouts of torchvision, and
// a config.json with the form of the inputs, which other programs need.
namespace troop {

// Loads the folder model.pretrained into `value` [P], which holds the initial weights. If the file
// has another number of classes, the last layer keeps these. config.json is not read: torchvision
// has none. tell: log the layers that keep their initial values. Errors: those of ReadWeightFiles
// and LoadImageWeights, with the key and the folder.
Status LoadPretrainedImages(const ModelConfig& model, const Module& module, std::span<float> value,
                            bool tell);
// Reads the file of weights without comparing it to a model. Errors: those of ReadWeightFiles.
Status CheckPretrainedImages(const std::string& folder);

// The form of an image classifier and its inputs.
struct ImageModelForm {
  const ModelConfig* model = nullptr;  // resolved
  // Pixels from 0 to 1 become (x - mean) / deviation, per channel; empty: unchanged.
  std::span<const double> mean, deviation;
};
// Writes the folder `folder` of a run. Blocks on the disk.
Status WriteImageModel(const ImageModelForm& form, const Module& module,
                       std::span<const float> value, std::string_view folder, Storage* run);

}  // namespace troop
