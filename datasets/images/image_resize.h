#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/config/enum_names.h"
#include "datasets/images/image.h"

namespace troop {

// How images of several sizes become images of one size.
enum class ResizeRule : std::uint8_t {
  kNone,       // they must have one size
  kStretch,    // the whole image, also if its sides have another ratio
  kCenterCrop  // the largest part in the center with the ratio of the new sides
};
constexpr auto EnumNames(ResizeRule) {
  return std::to_array<std::string_view>({"none", "stretch", "center_crop"});
}

// Bilinear resizing with antialiasing to [height, width, channels]: a triangle filter whose width
// grows with the reduction, first along rows, then along columns, each rounded to 8 bits, as Pillow
// and torchvision resize. REQUIRES: height, width >= 1. O(pixels x reduction).
Image ResizeImage(const Image& image, std::int64_t height, std::int64_t width);

// The part [top, top + height) x [left, left + width). REQUIRES: it lies within the image.
struct ImageRegion {
  std::int64_t top = 0;
  std::int64_t left = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
};
Image CropImage(const Image& image, const ImageRegion& region);

// Applies a rule. Images of the wanted size are returned as they are. REQUIRES: not kNone; height,
// width >= 1.
Image FitImage(Image image, ResizeRule rule, std::int64_t height, std::int64_t width);

}  // namespace troop
