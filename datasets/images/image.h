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

enum class ResizeRule : std::uint8_t;

// The file of an image of a set.
struct ImageFile {
  std::string path;
  std::uint32_t checksum = 0;  // CRC-32C of the decoded pixels
  std::int64_t place = -1;     // index of its pixels in ImageSet::pixels; -1: not in memory
};

// Images of one size with their classes. PixelsOf (image_source.h) finds those of an image.
struct ImageSet {
  std::vector<std::uint8_t> pixels;  // [images in memory, height, width, channels]
  std::vector<std::int32_t> labels;  // [size()], in 0 .. classes - 1
  std::vector<ImageFile> files;      // [size()]; empty: all are in memory, in their order
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
  ResizeRule resize{};       // with which files were decoded
  std::int64_t elements() const { return height * width * channels; }
};

}  // namespace troop
