// Pixels of images that are in memory, and of files that are decoded when they are used.
#include "datasets/images/image_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/base/philox.h"
#include "core/graphics/png.h"
#include "datasets/images/image_folder.h"
#include "tests/core/temp_folder.h"

namespace troop {
namespace {

using testing::HasSubstr;

constexpr std::size_t kImages = 70;  // more than the reader decodes at a time

class ImageSourceTest : public testing::Test {
 protected:
  // Image i has its own size; the form is 4 x 3. One more file is damaged.
  ImageSourceTest() {
    Rng rng({.run_seed = 1, .purpose = Purpose::kTest});
    std::filesystem::create_directories(folder_.path() + "/a");
    for (std::size_t i = 0; i < kImages; ++i) {
      Picture picture{.width = 3 + int(i % 5), .height = 4, .rgb = {}};
      for (int k = 0; k < 12 * picture.width; ++k)
        picture.rgb.push_back(std::uint8_t(rng.Below(256)));
      Write(i, std::string(EncodePng(picture).text()));
    }
    std::ofstream(folder_.path() + "/a/damaged.jpg", std::ios::binary) << "\xFF\xD8\xFF\xE0";
  }
  std::string Path(std::size_t i) const {
    return folder_.path() + "/a/" + std::to_string(100 + i) + ".png";
  }
  void Write(std::size_t i, const std::string& bytes) const {
    std::ofstream(Path(i), std::ios::binary) << bytes;
  }
  Result<ImageData> Read(std::size_t cache_bytes, int threads) const {
    return ReadImages(folder_.path(), {.channels = 3,
                                       .resize = ResizeRule::kStretch,
                                       .height = 4,
                                       .width = 3,
                                       .cache_bytes = cache_bytes,
                                       .threads = threads});
  }

  const TempFolder folder_;
};

// With 100 bytes two images of 36 fit.
TEST_F(ImageSourceTest, PixelsDoNotDependOnMemoryAndThreads) {
  const ImageData whole = *Read(1 << 20, 1);
  EXPECT_EQ(whole.train.pixels.size(), 36 * kImages);
  for (const std::size_t bytes : {0, 100, 1 << 20}) {
    const ImageData data = *Read(bytes, 3);
    EXPECT_EQ(data.train.pixels.size(), std::min<std::size_t>(bytes / 36, kImages) * 36);
    EXPECT_EQ(data.skipped, 1);
    ASSERT_EQ(data.train.size(), std::int64_t(kImages));
    std::vector<std::uint8_t> decoded;
    for (std::size_t i = 0; i < kImages; ++i) {
      const auto pixels = PixelsOf(data, data.train, std::int64_t(i), &decoded);
      ASSERT_TRUE(pixels.ok()) << pixels.status().ToString();
      EXPECT_TRUE(std::ranges::equal(*pixels, std::span(whole.train.pixels).subspan(36 * i, 36)));
    }
    EXPECT_EQ(ColorComponentsOf(data)->eigenvalue, ColorComponentsOf(whole)->eigenvalue);
  }
}

// Other pixels in the middle of a run would go unnoticed.
TEST_F(ImageSourceTest, ChangedFilesAreNamed) {
  const ImageData data = *Read(0, 1);
  std::vector<std::uint8_t> decoded;
  const auto message = [&](std::int64_t i) {
    return PixelsOf(data, data.train, i, &decoded).status().message();
  };
  EXPECT_EQ(message(5), "");
  Write(5, std::string(
               EncodePng({.width = 3, .height = 4, .rgb = std::vector<std::uint8_t>(36)}).text()));
  EXPECT_THAT(message(5), HasSubstr(Path(5) + ": the file has changed since the start; restore"));
  Write(6, "damaged");
  EXPECT_THAT(message(6), HasSubstr("changed since the start: it begins neither"));
  std::filesystem::remove(Path(7));
  EXPECT_EQ(PixelsOf(data, data.train, 7, &decoded).status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace troop
