// Implements DecodePng with libpng, whose errors leave by longjmp. No object with a destructor is
// created between setjmp and longjmp: those live in the caller.

#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstring>
#include <string>
#include <utility>

#include "datasets/images/image_file.h"

namespace troop {
namespace {

// State of one decoding, reached from libpng's callbacks. Owned by DecodePng.
struct PngReading {
  std::string_view bytes;  // not yet consumed
  std::string error;       // message from libpng
  Status status = Status::Ok();
  Image image;
  std::vector<png_bytep> rows;
};

// libpng's default would print the message.
[[noreturn]] void OnError(png_structp png, png_const_charp message) {
  static_cast<PngReading*>(png_get_error_ptr(png))->error = message;
  png_longjmp(png, 1);
}

// Warnings concern chunks that do not change the pixels.
void OnWarning(png_structp, png_const_charp) {}

// Bytes come from memory instead of a FILE.
void ReadBytes(png_structp png, png_bytep to, std::size_t size) {
  auto* const reading = static_cast<PngReading*>(png_get_io_ptr(png));
  if (size > reading->bytes.size()) png_error(png, "the file is truncated");
  std::memcpy(to, reading->bytes.data(), size);
  reading->bytes.remove_prefix(size);
}

// All kinds of files become 8 bits per channel, gray or RGB.
void SetConversions(png_structp png, png_infop info) {
  png_set_expand(png);
  png_set_strip_16(png);
  png_set_strip_alpha(png);
  png_set_interlace_handling(png);
  png_read_update_info(png, info);
}

// Allocates the pixels of the header's size. False: too large.
bool MakeRows(png_structp png, png_infop info, PngReading* reading) {
  Image& image = reading->image;
  image.height = png_get_image_height(png, info);
  image.width = png_get_image_width(png, info);
  reading->status = CheckImageSize(image.height, image.width);
  if (!reading->status.ok()) return false;
  SetConversions(png, info);
  image.channels = png_get_channels(png, info);
  const std::size_t row = std::size_t(image.width * image.channels);
  // A difference would let libpng write beyond the row.
  if (png_get_rowbytes(png, info) != row || (image.channels != 1 && image.channels != 3)) {
    png_error(png, "an unknown layout of pixels");
  }
  image.pixels.resize(std::size_t(image.height) * row);
  for (std::size_t y = 0; y < std::size_t(image.height); ++y) {
    reading->rows.push_back(image.pixels.data() + y * row);
  }
  return true;
}

// True if the image is complete; otherwise *reading has a status or an error.
bool ReadPixels(png_structp png, png_infop info, PngReading* reading) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  png_set_read_fn(png, reading, &ReadBytes);
  // Text and profiles could expand to gigabytes; their memory is bounded.
  png_set_chunk_malloc_max(png, 1 << 20);
  png_set_user_limits(png, png_uint_32(kImageSideMax), png_uint_32(kImageSideMax));
  png_read_info(png, info);
  if (!MakeRows(png, info, reading)) return false;
  png_read_image(png, reading->rows.data());
  // The rest has checksums; a file that ends here was cut.
  png_read_end(png, nullptr);
  return true;
}

}  // namespace

Result<Image> DecodePng(std::string_view bytes) {
  PngReading reading{.bytes = bytes};
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &reading, &OnError, &OnWarning);
  png_infop info = png == nullptr ? nullptr : png_create_info_struct(png);
  const bool complete = info != nullptr && ReadPixels(png, info, &reading);
  png_destroy_read_struct(&png, &info, nullptr);
  if (complete) return std::move(reading.image);
  if (!reading.status.ok()) return reading.status;
  return DataLoss("libpng: {}", reading.error);
}

}  // namespace troop
