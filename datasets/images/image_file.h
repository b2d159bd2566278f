#pragma once

#include <string_view>

#include "core/base/status.h"
#include "datasets/images/image.h"

namespace troop {

// True for the names of files that DecodeImage reads: .png, .jpg and .jpeg, in either case.
bool IsImageFile(std::string_view name);

// Decodes a PNG or JPEG file, judged by its first bytes. Palettes and fewer than 8 bits become 8
// bits per channel, of 16 bits the upper 8 remain, and an alpha channel is dropped. The result is
// gray if the file is, else RGB. Errors: kDataLoss: damaged, truncated or neither format;
// kResourceExhausted: larger than kImageSideMax or kImagePixelsMax. O(pixels).
Result<Image> DecodeImage(std::string_view bytes);

// The decoders of DecodeImage, with its errors.
Result<Image> DecodePng(std::string_view bytes);
Result<Image> DecodeJpeg(std::string_view bytes);

// Converts between gray and RGB. Gray is luma by ITU-R BT.601, 0.299 R + 0.587 G + 0.114 B,
// rounded. REQUIRES: channels is 1 or 3.
Image ConvertChannels(Image image, std::int64_t channels);

// Checks the declared size of an image. Errors: kDataLoss: not positive; kResourceExhausted: above
// kImageSideMax or kImagePixelsMax.
Status CheckImageSize(std::int64_t height, std::int64_t width);

}  // namespace troop
