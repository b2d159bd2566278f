// Implements the choice of a decoder, the limits of sizes, and conversions of channels.

#include "datasets/images/image_file.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <utility>

#include "core/base/check.h"

namespace troop {

bool IsImageFile(std::string_view name) {
  // Cameras write .JPG.
  std::string lower(name);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower.ends_with(".png") || lower.ends_with(".jpg") || lower.ends_with(".jpeg");
}

// The name of a file is not considered: a JPEG file called .png is common and readable.
Result<Image> DecodeImage(std::string_view bytes) {
  constexpr std::string_view kPng = "\x89PNG\r\n\x1a\n", kJpeg = "\xFF\xD8\xFF";
  if (bytes.starts_with(kPng)) return DecodePng(bytes);
  if (bytes.starts_with(kJpeg)) return DecodeJpeg(bytes);
  return DataLoss("it begins neither as a PNG nor as a JPEG file");
}

Status CheckImageSize(std::int64_t height, std::int64_t width) {
  if (height < 1 || width < 1) return DataLoss("its size is {} x {}", height, width);
  // The product cannot overflow, since both sides are limited first.
  if (height > kImageSideMax || width > kImageSideMax || height * width > kImagePixelsMax) {
    return ResourceExhausted("its size is {} x {}, at most {} pixels and {} per side are read",
                             height, width, kImagePixelsMax, kImageSideMax);
  }
  return Status::Ok();
}

Image ConvertChannels(Image image, std::int64_t channels) {
  TROOP_CHECK(channels == 1 || channels == 3, "{} channels", channels);
  if (image.channels == channels) return image;
  const std::int64_t pixels = image.height * image.width;
  std::vector<std::uint8_t> out(std::size_t(pixels * channels));
  for (std::size_t i = 0; i < std::size_t(pixels); ++i) {
    if (channels == 3) {
      std::fill_n(out.begin() + std::ptrdiff_t(3 * i), 3, image.pixels[i]);
      continue;
    }
    // The weights are those of BT.601 times 2^16, whose sum is 2^16.
    const std::uint8_t* const rgb = image.pixels.data() + 3 * i;
    out[i] = std::uint8_t((19595u * rgb[0] + 38470u * rgb[1] + 7471u * rgb[2] + 32768u) >> 16);
  }
  image.channels = channels;
  image.pixels = std::move(out);
  return image;
}

}  // namespace troop
