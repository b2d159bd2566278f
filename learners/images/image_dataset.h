#pragma once

#include <memory>
#include <string>

#include "core/base/status.h"
#include "datasets/images/augmentation.h"
#include "datasets/images/image.h"
#include "learners/supervised/dataset.h"
#include "learners/training_config.h"

namespace troop {

// Reads the images named by config.data, and splits off the validation and test sets. As for texts,
// each of the two stands in for the other if that is empty. The classes are those of model.labels
// or, if it is empty, of the data. Blocks on the disk. Errors: those of ReadImages, with the key;
// kInvalidArgument: no training images are left, a set and its split both exist, other classes than
// model.labels, or the data do not match config.data_identity.
Result<std::shared_ptr<const ImageData>> LoadImageData(const TrainingConfig& config);

// Human-readable fingerprint: the sizes, and a checksum of all pixels, labels and names. Learners
// may share batches if it is equal. O(pixels).
std::string IdentityOf(const ImageData& data);

// The transform that config.data describes. The color components are those of the training images.
// Errors: kInvalidArgument: it does not fit the images; the message names the key.
Result<ImageTransform> TransformOf(const TrainingConfig& config, const ImageData& data);

// DeriveDataSettings for images: the model's shape is that of the transformed images. Errors: those
// of LoadImageData, TransformOf and CheckImageModel; kInvalidArgument: model.image_* has other
// values.
Result<DataSettings> DeriveImageSettings(const TrainingConfig& config);

}  // namespace troop
