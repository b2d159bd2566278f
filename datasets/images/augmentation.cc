// Implements the random changes of images. The random numbers of a sample are drawn in a fixed
// order, also those that a setting does not use, so that one setting does not change another's.

#include "datasets/images/augmentation.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/check.h"
#include "core/base/philox.h"

namespace troop {
namespace {

using Matrix = std::array<std::array<double, 3>, 3>;

// One Jacobi rotation that makes a[p][q] zero; v collects the rotations in its columns.
void Rotate(std::size_t p, std::size_t q, Matrix* a, Matrix* v) {
  Matrix& m = *a;
  if (m[p][q] == 0) return;
  const double theta = (m[q][q] - m[p][p]) / (2 * m[p][q]);
  const double sign = theta < 0 ? -1 : 1;
  const double t = sign / (std::abs(theta) + std::sqrt(theta * theta + 1));
  const double c = 1 / std::sqrt(t * t + 1), s = t * c;
  // Columns, then rows: JᵀAJ.
  for (std::size_t k = 0; k < 3; ++k) {
    const double x = m[k][p], y = m[k][q];
    m[k][p] = c * x - s * y, m[k][q] = s * x + c * y;
  }
  for (std::size_t k = 0; k < 3; ++k) {
    const double x = m[p][k], y = m[q][k];
    m[p][k] = c * x - s * y, m[q][k] = s * x + c * y;
  }
  for (std::size_t k = 0; k < 3; ++k) {
    const double x = (*v)[k][p], y = (*v)[k][q];
    (*v)[k][p] = c * x - s * y, (*v)[k][q] = s * x + c * y;
  }
}

// Where an image is read: the crop's corner in the unpadded image, which may be negative.
struct Placement {
  std::int64_t top = 0;
  std::int64_t left = 0;
  bool flip = false;
  std::array<double, 3> color{};  // added to each channel
};

// Copies the crop and normalizes it.
void Write(const ImageTransform& transform, const Placement& at, const ImageData& shape,
           std::span<const std::uint8_t> pixels, std::span<float> out) {
  const auto [height, width] = TransformedSize(transform, shape.height, shape.width);
  const std::int64_t channels = shape.channels;
  TROOP_CHECK(std::int64_t(pixels.size()) == shape.elements() &&
                  std::int64_t(out.size()) == height * width * channels,
              "{} pixels to {}", pixels.size(), out.size());
  // x / 255 + color, minus the mean, divided by the deviation, is a x + b per channel.
  std::array<float, 3> a{}, b{};
  for (std::size_t c = 0; c < std::size_t(channels); ++c) {
    const double mean = transform.mean.empty() ? 0 : double(transform.mean[c]);
    const double deviation = transform.deviation.empty() ? 1 : double(transform.deviation[c]);
    a[c] = float(1 / (255 * deviation));
    b[c] = float((at.color[c] - mean) / deviation);
  }
  float* to = out.data();
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t x = 0; x < width; ++x) {
      const std::int64_t row = at.top + y, column = at.left + (at.flip ? width - 1 - x : x);
      const bool inside = row >= 0 && row < shape.height && column >= 0 && column < shape.width;
      const std::size_t from = std::size_t((row * shape.width + column) * channels);
      for (std::size_t c = 0; c < std::size_t(channels); ++c) {
        *to++ = a[c] * (inside ? float(pixels[from + c]) : 0.0f) + b[c];
      }
    }
  }
}

}  // namespace

void ColorSums::Add(std::span<const std::uint8_t> pixels) {
  TROOP_CHECK(pixels.size() % 3 == 0, "{} elements", pixels.size());
  pixels_ += pixels.size() / 3;
  for (std::size_t i = 0; i < pixels.size(); i += 3) {
    for (std::size_t c = 0; c < 3; ++c) sum_[c] += pixels[i + c];
    for (std::size_t j = 0; j < 9; ++j)
      products_[j] += std::uint64_t{pixels[i + j / 3]} * pixels[i + j % 3];
  }
}

// E[xy] - E[x] E[y] of exact sums loses less than the rounding of 1e-13.
ColorComponents ColorSums::Components() const {
  TROOP_CHECK(pixels_ > 0, "no pixels");
  const double n = double(pixels_);
  Matrix covariance{}, vectors{};
  for (std::size_t j = 0; j < 9; ++j) {
    const double means = double(sum_[j / 3]) / n * (double(sum_[j % 3]) / n);
    covariance[j / 3][j % 3] = (double(products_[j]) / n - means) / (255.0 * 255.0);
  }
  for (std::size_t c = 0; c < 3; ++c) vectors[c][c] = 1;
  // A 3 x 3 matrix needs about five sweeps for all digits.
  constexpr int kSweeps = 12;
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    for (const auto& [p, q] : {std::pair(0, 1), std::pair(0, 2), std::pair(1, 2)}) {
      Rotate(std::size_t(p), std::size_t(q), &covariance, &vectors);
    }
  }
  ColorComponents components;
  for (std::size_t i = 0; i < 3; ++i) {
    components.eigenvalue[i] = std::max(covariance[i][i], 0.0);
    for (std::size_t c = 0; c < 3; ++c) components.vectors[i][c] = vectors[c][i];
  }
  return components;
}

std::array<std::int64_t, 2> TransformedSize(const ImageTransform& transform, std::int64_t height,
                                            std::int64_t width) {
  return {transform.crop_height > 0 ? transform.crop_height : height,
          transform.crop_width > 0 ? transform.crop_width : width};
}

Status CheckTransform(const ImageTransform& transform, std::int64_t height, std::int64_t width,
                      std::int64_t channels) {
  const auto [crop_height, crop_width] = TransformedSize(transform, height, width);
  const std::int64_t padding = transform.padding;
  if (padding < 0 || padding > std::min(height, width)) {
    return InvalidArgument("the padding is {}, must be in 0 .. {}, the image's shorter side",
                           padding, std::min(height, width));
  }
  if (transform.crop_height < 0 || transform.crop_width < 0 || crop_height > height + 2 * padding ||
      crop_width > width + 2 * padding) {
    return InvalidArgument("the crop is {} x {}, must be at most the padded image's {} x {}",
                           crop_height, crop_width, height + 2 * padding, width + 2 * padding);
  }
  if (!(transform.flip >= 0 && transform.flip <= 1)) {
    return InvalidArgument("the probability of a flip is {}, must be in 0 .. 1", transform.flip);
  }
  if (!(transform.color_noise >= 0)) {
    return InvalidArgument("the color noise is {}, must not be negative", transform.color_noise);
  }
  // Gray images have no colors, so the setting would be ignored.
  if (transform.color_noise > 0 && channels != 3) {
    return InvalidArgument("color noise needs images with 3 channels, these have {}", channels);
  }
  for (const auto* list : {&transform.mean, &transform.deviation}) {
    if (!list->empty() && std::ssize(*list) != channels) {
      return InvalidArgument("mean and deviation have {} numbers, must have {}, one per channel",
                             list->size(), channels);
    }
  }
  for (const float deviation : transform.deviation) {
    if (!(deviation > 0) || !std::isfinite(deviation)) {
      return InvalidArgument("a deviation is {}, must be positive", deviation);
    }
  }
  return Status::Ok();
}

// Order of the draws: row and column of the crop, flip, three normal numbers.
void AugmentImage(const ImageTransform& transform, const AugmentationKey& key,
                  const ImageData& shape, std::span<const std::uint8_t> pixels,
                  std::span<float> out) {
  const auto [height, width] = TransformedSize(transform, shape.height, shape.width);
  const std::int64_t padding = transform.padding;
  Rng rng({key.run_seed, Purpose::kAugmentation, key.sample, key.epoch});
  // Uniform numbers instead of Below, which may draw several times.
  const auto place = [&](std::int64_t size, std::int64_t crop) {
    const std::int64_t places = size + 2 * padding - crop + 1;
    return std::min(std::int64_t(rng.Uniform() * double(places)), places - 1) - padding;
  };
  Placement at;
  at.top = place(shape.height, height);
  at.left = place(shape.width, width);
  at.flip = rng.Uniform() < transform.flip;
  for (std::size_t i = 0; i < 3 && transform.color_noise > 0; ++i) {
    const double amount = transform.color_noise * rng.Normal();
    for (std::size_t c = 0; c < 3; ++c) {
      at.color[c] +=
          amount * transform.components.eigenvalue[i] * transform.components.vectors[i][c];
    }
  }
  Write(transform, at, shape, pixels, out);
}

void NormalizeImage(const ImageTransform& transform, const ImageData& shape,
                    std::span<const std::uint8_t> pixels, std::span<float> out) {
  const auto [height, width] = TransformedSize(transform, shape.height, shape.width);
  // Negative for a crop larger than the image.
  const Placement at{.top = (shape.height - height) / 2, .left = (shape.width - width) / 2};
  Write(transform, at, shape, pixels, out);
}

}  // namespace troop
