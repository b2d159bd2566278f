#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace troop {

// Limits of one image. Larger files are errors before anything is allocated for their pixels.
inline constexpr std::int64_t kImageSideMax = 1 << 15;       // height and width
inline constexpr std::int64_t kImagePixelsMax = 1 << 26;     // height x width
inline constexpr std::size_t kImageFileBytesMax = 64 << 20;  // a compressed file

// An image: [height, width, channels] u8, top row first; 1 channel (gray) or 3 (RGB).
struct Image {
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 0;
  std::vector<std::uint8_t> pixels;
  bool operator==(const Image&) const = default;
};

// Images of one size with their classes. pixels: [size(), height, width, channels] u8.
struct ImageSet {
  std::vector<std::uint8_t> pixels;
  std::vector<std::int32_t> labels;  // in 0 .. classes - 1
  std::int64_t size() const { return std::int64_t(labels.size()); }
};

// A labeled data set. All its sets have images of one size, so an index and a size suffice to find
// an image.
struct ImageData {
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 0;
  std::vector<std::string> classes;  // names, by label
  ImageSet train, validation, test;
  std::int64_t skipped = 0;  // damaged files, which are in no set
  std::int64_t elements() const { return height * width * channels; }
};

}  // namespace troop
