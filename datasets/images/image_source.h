#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "datasets/images/augmentation.h"
#include "datasets/images/image.h"

namespace troop {

// The form that the files of a data set are decoded to.
struct ImageForm {
  std::int64_t channels = 0;
  ResizeRule resize{};
  std::int64_t height = 0, width = 0;  // with a resize rule
};
// Decodes a file and brings it to the form. damage: the reason why the file is not an image, then
// the result is empty. Errors: those of ReadFile. O(pixels).
Result<Image> DecodeFile(const std::string& path, const ImageForm& form, std::string* damage);

// The pixels of image `i` of a set: those in memory, or its file, decoded into *decoded. Thread
// safe for different *decoded. Errors: those of DecodeFile; kDataLoss: the file has changed since
// it was first read.
Result<std::span<const std::uint8_t>> PixelsOf(const ImageData& data, const ImageSet& set,
                                               std::int64_t i, std::vector<std::uint8_t>* decoded);

// ColorComponentsOf all training images. Errors: those of PixelsOf.
Result<ColorComponents> ColorComponentsOf(const ImageData& data);

}  // namespace troop
