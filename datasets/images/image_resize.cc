// Implements resizing by a separable triangle filter.

#include "datasets/images/image_resize.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/check.h"

namespace troop {
namespace {

// Weights of the inputs [first, first + weight.size()) of one output.
struct Taps {
  std::int64_t first = 0;
  std::vector<double> weight;
};

// The taps of `to` outputs over `from` inputs. Positions are centers of pixels. Enlarging has the
// filter of width 1, which interpolates.
std::vector<Taps> MakeTaps(std::int64_t from, std::int64_t to) {
  const double scale = double(from) / double(to), support = std::max(scale, 1.0);
  std::vector<Taps> taps(std::size_t(to), Taps{});
  for (std::int64_t i = 0; i < to; ++i) {
    Taps& tap = taps[std::size_t(i)];
    const double center = (double(i) + 0.5) * scale;
    // Truncation after adding a half: pixels whose centers lie within the support.
    tap.first = std::max<std::int64_t>(std::int64_t(center - support + 0.5), 0);
    const std::int64_t end = std::min(std::int64_t(center + support + 0.5), from);
    double sum = 0;
    for (std::int64_t j = tap.first; j < end; ++j) {
      const double distance = std::abs((double(j) + 0.5 - center) / support);
      tap.weight.push_back(std::max(1 - distance, 0.0));
      sum += tap.weight.back();
    }
    // At an edge a part of the filter is missing.
    for (double& weight : tap.weight) weight /= sum;
  }
  return taps;
}

// Resizes one axis of [outer, from, inner] to [outer, taps.size(), inner].
std::vector<std::uint8_t> ResizeAxis(const std::vector<std::uint8_t>& in, std::int64_t outer,
                                     std::int64_t from, std::int64_t inner,
                                     const std::vector<Taps>& taps) {
  std::vector<std::uint8_t> out;
  out.reserve(std::size_t(outer * inner) * taps.size());
  for (std::int64_t o = 0; o < outer; ++o) {
    for (const Taps& tap : taps) {
      for (std::int64_t i = 0; i < inner; ++i) {
        const std::uint8_t* x = in.data() + (o * from + tap.first) * inner + i;
        double sum = 0;
        for (const double weight : tap.weight) {
          sum += weight * *x;
          x += inner;
        }
        // A mean of bytes stays within their range.
        out.push_back(std::uint8_t(sum + 0.5));
      }
    }
  }
  return out;
}

}  // namespace

// An axis that keeps its length is not filtered.
Image ResizeImage(const Image& image, std::int64_t height, std::int64_t width) {
  TROOP_CHECK(height > 0 && width > 0, "resizing to {} x {}", height, width);
  Image out = image;
  if (width != image.width) {
    out.pixels = ResizeAxis(out.pixels, image.height, image.width, image.channels,
                            MakeTaps(image.width, width));
    out.width = width;
  }
  if (height != image.height) {
    out.pixels = ResizeAxis(out.pixels, 1, image.height, width * image.channels,
                            MakeTaps(image.height, height));
    out.height = height;
  }
  return out;
}

Image CropImage(const Image& image, const ImageRegion& region) {
  TROOP_CHECK(region.top >= 0 && region.left >= 0 && region.height > 0 && region.width > 0 &&
                  region.top + region.height <= image.height &&
                  region.left + region.width <= image.width,
              "{} x {} at ({}, {}) of {} x {}", region.height, region.width, region.top,
              region.left, image.height, image.width);
  Image out{region.height, region.width, image.channels, {}};
  const auto row = std::ptrdiff_t(region.width * image.channels);
  // Rows of the region are contiguous in the image.
  for (std::int64_t y = 0; y < region.height; ++y) {
    const auto from =
        image.pixels.begin() +
        std::ptrdiff_t(((region.top + y) * image.width + region.left) * image.channels);
    out.pixels.insert(out.pixels.end(), from, from + row);
  }
  return out;
}

Image FitImage(Image image, ResizeRule rule, std::int64_t height, std::int64_t width) {
  TROOP_CHECK(rule != ResizeRule::kNone, "no rule to resize to {} x {}", height, width);
  if (image.height == height && image.width == width) return image;
  if (rule == ResizeRule::kCenterCrop) {
    // The side that limits the part keeps its length; the other is shortened to the ratio.
    ImageRegion region{.height = image.height, .width = image.width};
    if (image.width * height > image.height * width) {
      region.width = std::max<std::int64_t>(image.height * width / height, 1);
    } else {
      region.height = std::max<std::int64_t>(image.width * height / width, 1);
    }
    region.top = (image.height - region.height) / 2;
    region.left = (image.width - region.width) / 2;
    image = CropImage(image, region);
  }
  return ResizeImage(image, height, width);
}

}  // namespace troop
