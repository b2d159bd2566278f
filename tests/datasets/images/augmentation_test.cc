// Random changes of images. The oracle reads the input by its definition: an output equals exactly
// one pair of place and flip, which the test finds by trying all of them.
#include "datasets/images/augmentation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <vector>

#include "core/base/philox.h"

namespace troop {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kHeight = 4, kWidth = 5;

ImageData Shape(std::int64_t channels) {
  return {.height = kHeight, .width = kWidth, .channels = channels};
}

// Pixels that are all different and not 0, the padding.
std::vector<std::uint8_t> Pixels(std::int64_t channels) {
  std::vector<std::uint8_t> pixels(std::size_t(kHeight * kWidth * channels));
  std::iota(pixels.begin(), pixels.end(), std::uint8_t(1));
  return pixels;
}

// Value of the padded image's pixel, as 0 to 255.
int At(const std::vector<std::uint8_t>& pixels, std::int64_t y, std::int64_t x) {
  if (y < 0 || y >= kHeight || x < 0 || x >= kWidth) return 0;
  return pixels[std::size_t(y * kWidth + x)];
}

struct Found {
  std::int64_t top, left;
  bool flip;
  auto operator<=>(const Found&) const = default;
};

// All placements that explain a gray crop.
std::vector<Found> Explain(const std::vector<std::uint8_t>& pixels, const ImageTransform& t,
                           const std::vector<float>& out) {
  std::vector<Found> found;
  const std::int64_t p = t.padding;
  for (std::int64_t top = -p; top + t.crop_height <= kHeight + p; ++top) {
    for (std::int64_t left = -p; left + t.crop_width <= kWidth + p; ++left) {
      for (const bool flip : {false, true}) {
        bool equal = true;
        for (std::int64_t y = 0; y < t.crop_height; ++y) {
          for (std::int64_t x = 0; x < t.crop_width; ++x) {
            const std::int64_t column = flip ? left + t.crop_width - 1 - x : left + x;
            const double expected = At(pixels, top + y, column) / 255.0;
            const double got = double(out[std::size_t(y * t.crop_width + x)]);
            equal = equal && std::abs(got - expected) < 1e-6;
          }
        }
        if (equal) found.push_back({top, left, flip});
      }
    }
  }
  return found;
}

std::vector<float> Augment(const ImageTransform& t, const AugmentationKey& key,
                           std::int64_t channels = 1) {
  const auto [height, width] = TransformedSize(t, kHeight, kWidth);
  std::vector<float> out(std::size_t(height * width * channels));
  AugmentImage(t, key, Shape(channels), Pixels(channels), out);
  return out;
}

// 5 x 5 places and 2 flips; 5000 samples give each 100 ± 10. All lie within 6 standard deviations
// with a false alarm once in 10^7 keys; the keys are fixed.
TEST(AugmentationTest, CropsAndFlipsAreUniform) {
  const ImageTransform t{.padding = 1, .crop_height = 2, .crop_width = 3, .flip = 0.5};
  std::map<Found, int> counts;
  for (std::uint64_t sample = 0; sample < 5000; ++sample) {
    const auto found = Explain(Pixels(1), t, Augment(t, {.run_seed = 1, .sample = sample}));
    ASSERT_EQ(found.size(), 1u) << sample;
    ++counts[found[0]];
  }
  EXPECT_EQ(counts.size(), 50u);
  for (const auto& [place, count] : counts) EXPECT_NEAR(count, 100, 60);
}

// A sample's image depends on its key alone: another sample, epoch or seed gives other images.
TEST(AugmentationTest, KeyAloneDecides) {
  const ImageTransform t{.padding = 2, .crop_height = 4, .crop_width = 4, .flip = 0.5};
  const AugmentationKey key{.run_seed = 3, .sample = 7, .epoch = 2};
  const std::vector<float> first = Augment(t, key);
  (void)Augment(t, {.run_seed = 3, .sample = 8, .epoch = 2});
  EXPECT_EQ(Augment(t, key), first);
  int different = 0;
  for (std::uint64_t i = 10; i < 20; ++i) {
    different += Augment(t, {.run_seed = i, .sample = 7, .epoch = 2}) != first;
    different += Augment(t, {.run_seed = 3, .sample = i, .epoch = 2}) != first;
    different += Augment(t, {.run_seed = 3, .sample = 7, .epoch = i}) != first;
  }
  EXPECT_GE(different, 25);
}

// One setting does not change the random numbers of another.
TEST(AugmentationTest, FlipKeepsTheCrop) {
  ImageTransform t{.padding = 1, .crop_height = 3, .crop_width = 3};
  for (std::uint64_t sample = 0; sample < 20; ++sample) {
    t.flip = 0;
    const auto plain = Explain(Pixels(1), t, Augment(t, {.sample = sample}));
    t.flip = 1;
    const auto flipped = Explain(Pixels(1), t, Augment(t, {.sample = sample}));
    ASSERT_EQ(flipped.size(), 1u);
    EXPECT_EQ(flipped[0], (Found{plain.at(0).top, plain.at(0).left, true})) << sample;
  }
}

TEST(AugmentationTest, EvaluationIsCenteredAndNormalized) {
  const ImageTransform t{.padding = 2,
                         .crop_height = 2,
                         .crop_width = 3,
                         .flip = 1,
                         .color_noise = 1,
                         .mean = {0.5f, 0.25f, 0},
                         .deviation = {0.5f, 2, 1}};
  std::vector<float> out(2 * 3 * 3);
  NormalizeImage(t, Shape(3), Pixels(3), out);
  for (std::size_t i = 0; i < out.size(); ++i) {
    // Row 1 and column 1 are the corner of the centered crop.
    const std::size_t y = 1 + i / 9, x = 1 + i / 3 % 3, c = i % 3;
    const double pixel = double((y * kWidth + x) * 3 + c + 1) / 255;
    const double mean = double(t.mean[c]), deviation = double(t.deviation[c]);
    EXPECT_NEAR(double(out[i]), (pixel - mean) / deviation, 1e-6) << i;
  }
}

// C v = λ v with orthonormal v, where C is the covariance by its definition.
TEST(AugmentationTest, ComponentsAreEigenvectorsOfTheCovariance) {
  Rng rng({1, Purpose::kTest});
  std::vector<std::uint8_t> pixels;
  for (int i = 0; i < 300; ++i) {
    const std::uint32_t common = rng.Below(150);
    for (const std::uint32_t range : {100u, 40u, 20u}) {
      pixels.push_back(std::uint8_t(common + rng.Below(range)));
    }
  }
  double mean[3] = {}, covariance[3][3] = {};
  for (std::size_t i = 0; i < 900; ++i) mean[i % 3] += pixels[i] / 255.0 / 300;
  for (std::size_t i = 0; i < 900; i += 3) {
    for (std::size_t a = 0; a < 3; ++a) {
      for (std::size_t b = 0; b < 3; ++b) {
        covariance[a][b] +=
            (pixels[i + a] / 255.0 - mean[a]) * (pixels[i + b] / 255.0 - mean[b]) / 300;
      }
    }
  }
  // In two parts: the sums do not depend on the order.
  ColorSums sums;
  sums.Add(std::span(pixels).subspan(30));
  sums.Add(std::span(pixels).first(30));
  const ColorComponents parts = sums.Components();
  double trace = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    trace += parts.eigenvalue[i];
    for (std::size_t a = 0; a < 3; ++a) {
      double product = 0, other = 0;
      for (std::size_t b = 0; b < 3; ++b) {
        product += covariance[a][b] * parts.vectors[i][b];
        other += parts.vectors[i][b] * parts.vectors[a][b];
      }
      EXPECT_NEAR(product, parts.eigenvalue[i] * parts.vectors[i][a], 1e-12);
      EXPECT_NEAR(other, i == a ? 1 : 0, 1e-12);
    }
  }
  EXPECT_NEAR(trace, covariance[0][0] + covariance[1][1] + covariance[2][2], 1e-12);
}

// The noise is one color per image, Σ α_i λ_i v_i with α of the given deviation. 4000 images give
// its covariance, Σ (0.1 λ_i)² v_i v_iᵀ, with a relative deviation of 2.2 %; 6 of these pass.
TEST(AugmentationTest, ColorNoiseHasTheComponentsCovariance) {
  ImageTransform t{.color_noise = 0.1};
  t.components.eigenvalue = {4, 1, 0};
  const double h = std::sqrt(0.5);
  t.components.vectors = {{{h, h, 0}, {h, -h, 0}, {0, 0, 1}}};
  const std::vector<std::uint8_t> pixels = Pixels(3);
  double red = 0, both = 0;
  for (std::uint64_t sample = 0; sample < 4000; ++sample) {
    const std::vector<float> out = Augment(t, {.run_seed = 5, .sample = sample}, 3);
    double color[3];
    for (std::size_t c = 0; c < 3; ++c) color[c] = double(out[c]) - pixels[c] / 255.0;
    for (std::size_t i = 0; i < out.size(); ++i) {
      ASSERT_NEAR(double(out[i]) - pixels[i] / 255.0, color[i % 3], 1e-5);
    }
    EXPECT_NEAR(color[2], 0, 1e-6);
    red += color[0] * color[0] / 4000;
    both += color[0] * color[1] / 4000;
  }
  EXPECT_NEAR(red, 0.01 * (16 + 1) / 2, 0.14 * 0.085);
  EXPECT_NEAR(both, 0.01 * (16 - 1) / 2, 0.14 * 0.085);
}

TEST(AugmentationTest, BadSettingsAreNamed) {
  const auto message = [](const ImageTransform& t, std::int64_t channels = 1) {
    return CheckTransform(t, kHeight, kWidth, channels).message();
  };
  EXPECT_EQ(message({.padding = 2, .crop_height = 8, .crop_width = 9}), "");
  EXPECT_THAT(message({.crop_height = 5}), HasSubstr("the crop is 5 x 5, must be at most"));
  EXPECT_THAT(message({.padding = 5}), HasSubstr("the padding is 5, must be in 0 .. 4"));
  EXPECT_THAT(message({.flip = 1.5}), HasSubstr("the probability of a flip is 1.5"));
  EXPECT_THAT(message({.color_noise = 0.1}), HasSubstr("needs images with 3 channels"));
  EXPECT_THAT(message({.mean = {1}}, 3), HasSubstr("have 1 numbers, must have 3"));
  EXPECT_THAT(message({.deviation = {0}}), HasSubstr("a deviation is 0, must be positive"));
}

}  // namespace
}  // namespace troop
