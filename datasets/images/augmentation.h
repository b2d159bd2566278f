#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "datasets/images/image.h"

namespace troop {

// Principal components of the colors of a data set (Krizhevsky et al. 2012, sec. 4.1).
struct ColorComponents {
  std::array<double, 3> eigenvalue{};              // variances along the vectors
  std::array<std::array<double, 3>, 3> vectors{};  // [component][channel], of length 1
};
// Sums over RGB pixels, as integers: exact, in any order.
class ColorSums {
 public:
  // pixels: [n, 3]. O(n).
  void Add(std::span<const std::uint8_t> pixels);
  // Components of the covariance, in units of 1 (pixel 255). REQUIRES: at least one pixel.
  ColorComponents Components() const;

 private:
  std::uint64_t pixels_ = 0;
  std::array<std::uint64_t, 3> sum_{};
  std::array<std::uint64_t, 9> products_{};  // [channel][channel]
};

// Random changes of training images, and the numbers that the network sees.
struct ImageTransform {
  std::int64_t padding = 0;      // zeros on each side, before the crop
  std::int64_t crop_height = 0;  // 0: the image's own
  std::int64_t crop_width = 0;
  double flip = 0;                     // probability of a horizontal flip
  double color_noise = 0;              // standard deviation of AlexNet's noise; RGB only
  ColorComponents components;          // with color_noise
  std::vector<float> mean, deviation;  // per channel, in units of 1; empty: 0 and 1
};

// Identifies the random numbers of a sample: the same key gives the same image in every batch, mesh
// and process (docs/design/determinism.md).
struct AugmentationKey {
  std::uint64_t run_seed = 0;
  std::uint64_t sample = 0;  // global index in the training set
  std::uint64_t epoch = 0;
};

// Height and width after the transform of an image of this size.
std::array<std::int64_t, 2> TransformedSize(const ImageTransform& transform, std::int64_t height,
                                            std::int64_t width);
// Checks a transform for images of this shape. Errors: kInvalidArgument, which names the value.
Status CheckTransform(const ImageTransform& transform, std::int64_t height, std::int64_t width,
                      std::int64_t channels);

// One image [height, width, channels] u8 → [height', width', channels] f32, in this order: random
// crop of the padded image, flip, pixels / 255, color noise, (x - mean) / deviation. Padding has
// the pixel 0, which is normalized, too, as torchvision does. REQUIRES: CheckTransform; sizes of
// `pixels` and `out`. O(pixels).
void AugmentImage(const ImageTransform& transform, const AugmentationKey& key,
                  const ImageData& shape, std::span<const std::uint8_t> pixels,
                  std::span<float> out);
// Transform without randomness, for evaluation: the crop is centered, nothing is padded, flipped or
// colored. A crop larger than the image is centered in the padded one.
void NormalizeImage(const ImageTransform& transform, const ImageData& shape,
                    std::span<const std::uint8_t> pixels, std::span<float> out);

}  // namespace troop
